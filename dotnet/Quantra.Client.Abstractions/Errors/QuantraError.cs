using System.Collections.ObjectModel;
using System.Globalization;

namespace Quantra.Client;

/// <summary>What went wrong, for people and for programs.</summary>
/// <param name="Code">What kind of failure; the same over gRPC and from a predictor inside this process.</param>
/// <param name="Reason">One of <see cref="QuantraReason"/>, or one that a newer server added.</param>
/// <param name="Message">What is wrong, which value, and what to do.</param>
/// <param name="Metadata">The values in the message, as text by name.</param>
public sealed record QuantraError(
    QuantraStatus Code,
    string Reason,
    string Message,
    IReadOnlyDictionary<string, string> Metadata)
{
    /// <summary>An error whose message says all.</summary>
    /// <param name="code">What kind of failure.</param>
    /// <param name="reason">One of <see cref="QuantraReason"/>.</param>
    /// <param name="message">What is wrong, which value, and what to do.</param>
    public QuantraError(QuantraStatus code, string reason, string message)
        : this(code, reason, message, ReadOnlyDictionary<string, string>.Empty)
    {
    }

    /// <summary>Whether the same call may well succeed later: nobody answered, or there was too much to do.</summary>
    /// <remarks>Also of reasons that this version does not know: the code says it, or that there is a time to wait.</remarks>
    public bool IsTransient => Code == QuantraStatus.Unavailable || Reason == QuantraReason.QueueFull || RetryAfter is not null;

    /// <summary>How long to wait before that; null = the server did not say.</summary>
    public TimeSpan? RetryAfter =>
        Metadata.TryGetValue("retry_after_ms", out var text)
        && double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out var milliseconds)
        && milliseconds is >= 0 and < int.MaxValue
            ? TimeSpan.FromMilliseconds(milliseconds)
            : null;

    /// <summary>This error as an exception.</summary>
    /// <param name="inner">What caused it, if known.</param>
    /// <returns>An exception to throw.</returns>
    public QuantraException ToException(Exception? inner = null) => new(this, inner);

    /// <inheritdoc/>
    public bool Equals(QuantraError? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "TOO_FEW_BARS: AAPL has 20 bars, 30 are needed".</returns>
    public override string ToString() => $"{Reason}: {Message}";

    internal static QuantraError BadBars(string message) => BadFile(QuantraReason.BarsInvalid, message);

    internal static QuantraError BadCovariates(string message) => BadFile(QuantraReason.CovariatesInvalid, message);

    internal static QuantraError BadFile(string reason, string message) => new(QuantraStatus.InvalidArgument, reason, message);

    private object?[] Parts() =>
    [
        Code,
        Reason,
        Message,
        ByValue.Of(Metadata),
    ];
}
