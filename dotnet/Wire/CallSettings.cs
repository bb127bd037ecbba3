namespace Quantra.Client.Wire;

/// <summary>Timeouts and bounds of calls, streams and sessions.</summary>
internal sealed record CallSettings
{
    /// <summary>See <see cref="MaxInFlight"/>.</summary>
    public const int DefaultInFlight = 32;

    /// <summary>Who is asked, for messages.</summary>
    public required string Target { get; init; }

    /// <summary>Longest wait for the answer to one request.</summary>
    public required TimeSpan Timeout { get; init; }

    /// <summary>Requests of one stream that are asked, and whose results were not read.</summary>
    public required int MaxInFlight { get; init; }

    /// <summary>How often a request may be tried; 1 = only once.</summary>
    public required int MaxAttempts { get; init; }

    /// <summary>Largest request that is sent, in bytes.</summary>
    public required int MaxRequestBytes { get; init; }

    /// <summary>A predictor answers a request whose time is over; one that has not by so much later never will.</summary>
    public TimeSpan Silence { get; init; } = TimeSpan.FromSeconds(5);

    /// <summary>How long to wait before a request is tried once more; null = it is not.</summary>
    /// <param name="attempts">Those that have failed, from 1.</param>
    /// <param name="error">Of the last one.</param>
    /// <param name="deadline">Of the request.</param>
    public TimeSpan? PauseAfter(int attempts, QuantraError error, Deadline deadline)
    {
        if (!error.IsTransient || attempts >= MaxAttempts)
            return null;
        var pause = Backoff.After(attempts, error);
        return pause < deadline.Left ? pause : null;
    }

    /// <summary>The error of a predictor that has fallen silent.</summary>
    public QuantraException Silent() => new QuantraError(
        QuantraStatus.DeadlineExceeded,
        QuantraReason.DeadlineExceeded,
        FormattableString.Invariant($"no answer from {Target} within {(Timeout + Silence).TotalSeconds:g} s; allow more time, or ask elsewhere"))
        .ToException();

    /// <summary>The error of a request whose time was over before it was sent.</summary>
    public QuantraError TooLate() => new(
        QuantraStatus.DeadlineExceeded,
        QuantraReason.DeadlineExceeded,
        FormattableString.Invariant($"no answer from {Target} within {Timeout.TotalSeconds:g} s; allow more time"));
}
