namespace Quantra.Client;

/// <summary>Why a ledger's forecast was made.</summary>
public enum ForecastRole
{
    /// <summary>A role that this version of the client does not know.</summary>
    Unknown,

    /// <summary>By the champion.</summary>
    Champion,

    /// <summary>By a version that may become the champion.</summary>
    Challenger,

    /// <summary>By a simple method, for comparison.</summary>
    Baseline,

    /// <summary>For a client that asked for it. It does not count as evidence.</summary>
    Client,
}
