namespace Quantra.Client.Wire;

/// <summary>Records logs, metrics and traces of streams and sessions: models, reasons and times, never payloads.</summary>
internal interface IStreamTelemetry
{
    ICallTelemetry BeginStream();

    /// <summary>Records that a request of a stream was answered; the reason is null for a forecast.</summary>
    void RequestCompleted(string model, TimeSpan duration, string? reason);

    /// <summary>Records that a stream broke and continues over another call.</summary>
    void StreamResumed(string reason);

    ICallTelemetry BeginSessionRequest(string model);

    /// <summary>Records that a lost session is open again.</summary>
    void SessionReopened(string session, string model, string reason);
}
