using System.Collections.ObjectModel;
using System.Globalization;

namespace Quantra.Client;

/// <summary>An error, for people and for programs.</summary>
/// <param name="Code">Kind of failure; the same over gRPC and from a predictor inside this process.</param>
/// <param name="Reason">One of <see cref="QuantraReason"/>, or a reason that a newer server added.</param>
/// <param name="Message">What is wrong, the value, and what to do.</param>
/// <param name="Metadata">Values of the message as text, by name.</param>
public sealed record QuantraError(
    QuantraStatus Code,
    string Reason,
    string Message,
    IReadOnlyDictionary<string, string> Metadata)
{
    /// <summary>Creates an error without metadata.</summary>
    /// <param name="code">Kind of failure.</param>
    /// <param name="reason">One of <see cref="QuantraReason"/>.</param>
    /// <param name="message">What is wrong, the value, and what to do.</param>
    public QuantraError(QuantraStatus code, string reason, string message)
        : this(code, reason, message, ReadOnlyDictionary<string, string>.Empty)
    {
    }

    /// <summary>Whether the same call may succeed later, because the server was unreachable or overloaded.</summary>
    /// <remarks>Also works for reasons that this version does not know, by the code and the retry delay.</remarks>
    public bool IsTransient => Code == QuantraStatus.Unavailable || Reason == QuantraReason.QueueFull || RetryAfter is not null;

    /// <summary>How long to wait before a retry; null = unspecified.</summary>
    public TimeSpan? RetryAfter =>
        Metadata.TryGetValue("retry_after_ms", out var text)
        && double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out var milliseconds)
        && milliseconds is >= 0 and < int.MaxValue
            ? TimeSpan.FromMilliseconds(milliseconds)
            : null;

    /// <summary>Converts the error to an exception.</summary>
    /// <param name="inner">The cause, if known.</param>
    /// <returns>An exception to throw.</returns>
    public QuantraException ToException(Exception? inner = null) => new(this, inner);

    /// <inheritdoc/>
    public bool Equals(QuantraError? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "TOO_FEW_BARS: AAPL has 20 bars, 30 are needed".</returns>
    public override string ToString() => $"{Reason}: {Message}";

    internal static QuantraError BadBars(string message) => BadFile(QuantraReason.BarsInvalid, message);

    internal static QuantraError BadCovariates(string message) => BadFile(QuantraReason.CovariatesInvalid, message);

    internal static QuantraError BadFile(string reason, string message) => new(QuantraStatus.InvalidArgument, reason, message);

    private object?[] Parts() =>
    [
        Code,
        Reason,
        Message,
        ValueEquality.Of(Metadata),
    ];
}
