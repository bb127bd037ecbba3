namespace Quantra.Client.Wire;

/// <summary>What may be seen of streams and sessions: models, reasons and times, never what was sent or answered.</summary>
internal interface IStreamWatch
{
    /// <summary>A stream of requests begins.</summary>
    IWatchedCall BeginStream();

    /// <summary>A request of a stream was answered.</summary>
    /// <param name="model">That was asked.</param>
    /// <param name="took">From the request to its answer.</param>
    /// <param name="reason">Of its error; null = it has a forecast.</param>
    void Answered(string model, TimeSpan took, string? reason);

    /// <summary>A stream broke, and goes on over another call.</summary>
    void GoesOn(string reason);

    /// <summary>A request of a session begins.</summary>
    IWatchedCall BeginRequest(string model);

    /// <summary>A session was lost, and is open again.</summary>
    void Reopened(string session, string model, string reason);
}
