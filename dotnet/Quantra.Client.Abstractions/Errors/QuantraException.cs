namespace Quantra.Client;

/// <summary>A call that failed. A predictor throws nothing else, except for cancellation and wrong arguments.</summary>
public sealed class QuantraException : Exception
{
    /// <summary>Creates an exception from an error.</summary>
    /// <param name="error">What went wrong.</param>
    /// <param name="innerException">What caused it, if known.</param>
    public QuantraException(QuantraError error, Exception? innerException = null)
        : base(MessageOf(error), innerException) => Error = error;

    /// <summary>What went wrong.</summary>
    public QuantraError Error { get; }

    /// <summary>What kind of failure.</summary>
    public QuantraStatus Code => Error.Code;

    /// <summary>A code that stays the same between versions; see <see cref="QuantraReason"/>.</summary>
    public string Reason => Error.Reason;

    /// <summary>The values in the message, as text by name, for example "have" and "need".</summary>
    public IReadOnlyDictionary<string, string> Metadata => Error.Metadata;

    /// <inheritdoc cref="QuantraError.IsTransient"/>
    public bool IsTransient => Error.IsTransient;

    /// <inheritdoc cref="QuantraError.RetryAfter"/>
    public TimeSpan? RetryAfter => Error.RetryAfter;

    private static string MessageOf(QuantraError error)
    {
        ArgumentNullException.ThrowIfNull(error);
        return error.Message;
    }
}
