namespace Quantra.Client;

/// <summary>Thrown when a call fails. Predictors throw nothing else, except for cancellation and invalid arguments.</summary>
public sealed class QuantraException : Exception
{
    /// <summary>Creates an exception from an error.</summary>
    /// <param name="error">The error.</param>
    /// <param name="innerException">The cause, if known.</param>
    public QuantraException(QuantraError error, Exception? innerException = null)
        : base(DescribeError(error), innerException) => Error = error;

    /// <summary>The error.</summary>
    public QuantraError Error { get; }

    /// <summary>Kind of failure.</summary>
    public QuantraStatus Code => Error.Code;

    /// <summary>A code that is stable between versions; see <see cref="QuantraReason"/>.</summary>
    public string Reason => Error.Reason;

    /// <summary>Values of the message as text, by name, for example "have" and "need".</summary>
    public IReadOnlyDictionary<string, string> Metadata => Error.Metadata;

    /// <inheritdoc cref="QuantraError.IsTransient"/>
    public bool IsTransient => Error.IsTransient;

    /// <inheritdoc cref="QuantraError.RetryAfter"/>
    public TimeSpan? RetryAfter => Error.RetryAfter;

    private static string DescribeError(QuantraError error)
    {
        ArgumentNullException.ThrowIfNull(error);
        return error.Message;
    }
}
