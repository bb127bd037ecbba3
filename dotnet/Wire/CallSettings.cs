namespace Quantra.Client.Wire;

/// <summary>Timeouts and limits of calls, streams and sessions.</summary>
internal sealed record CallSettings
{
    /// <summary>Default of <see cref="MaxInFlight"/>.</summary>
    public const int DefaultMaxInFlight = 32;

    /// <summary>Name of the predictor in messages.</summary>
    public required string Target { get; init; }

    /// <summary>Longest wait for the response to one request.</summary>
    public required TimeSpan Timeout { get; init; }

    /// <summary>Largest number of requests of one stream whose results have not been read.</summary>
    public required int MaxInFlight { get; init; }

    /// <summary>Largest number of attempts per request, including the first.</summary>
    public required int MaxAttempts { get; init; }

    /// <summary>Largest request in bytes.</summary>
    public required int MaxRequestBytes { get; init; }

    /// <summary>Extra wait after the timeout: a healthy predictor answers expired requests too, so a missing response means that it hangs.</summary>
    public TimeSpan ResponseGrace { get; init; } = TimeSpan.FromSeconds(5);

    /// <summary>Returns the delay before the next attempt, or null if the request must not be repeated.</summary>
    public TimeSpan? RetryDelay(int attempts, QuantraError error, Deadline deadline)
    {
        if (!error.IsTransient || attempts >= MaxAttempts)
            return null;
        var delay = Backoff.After(attempts, error);
        return delay < deadline.Remaining ? delay : null;
    }

    /// <summary>Creates the error for a predictor that does not respond at all.</summary>
    public QuantraException CreateNoResponseError() => new QuantraError(
        QuantraStatus.DeadlineExceeded,
        QuantraReason.DeadlineExceeded,
        FormattableString.Invariant($"no response from {Target} within {(Timeout + ResponseGrace).TotalSeconds:g} s; set a longer timeout, or use another server"))
        .ToException();

    /// <summary>Creates the error for a request whose deadline passed before it was sent.</summary>
    public QuantraError CreateDeadlineError() => new(
        QuantraStatus.DeadlineExceeded,
        QuantraReason.DeadlineExceeded,
        FormattableString.Invariant($"no response from {Target} within {Timeout.TotalSeconds:g} s; set a longer timeout"));
}
