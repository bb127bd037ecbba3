namespace Quantra.Client.Hosting;

/// <summary>State of a supervised server.</summary>
public enum QuantraServerState
{
    /// <summary>Not started, or stopped.</summary>
    Stopped = 0,

    /// <summary>The process is starting or loading models, also after a crash. Calls wait.</summary>
    Starting = 1,

    /// <summary>The server answers calls.</summary>
    Ready = 2,

    /// <summary>The process runs but does not report that it is healthy. Calls may be slow or fail.</summary>
    Degraded = 3,

    /// <summary>The server could not be started or crashed too often, and is not restarted. Calls fail with the reason.</summary>
    Failed = 4,
}
