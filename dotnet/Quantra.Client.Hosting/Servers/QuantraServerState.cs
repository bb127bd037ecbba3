namespace Quantra.Client.Hosting;

/// <summary>Where a server stands that a program keeps running.</summary>
public enum QuantraServerState
{
    /// <summary>It was not started yet, or was stopped.</summary>
    Stopped = 0,

    /// <summary>Its process is about to start, or loads the models; also after it has died, until it is back. Calls wait.</summary>
    Starting = 1,

    /// <summary>It answers.</summary>
    Ready = 2,

    /// <summary>Its process runs, but does not say that it is well: calls may take long or fail.</summary>
    Degraded = 3,

    /// <summary>It could not be started, or died too often, and is not started again by itself. Calls fail with the reason.</summary>
    Failed = 4,
}
