namespace Quantra.Client;

/// <summary>Kind of a covariate.</summary>
public enum CovariateGroup
{
    /// <summary>A group that this version of the client does not know.</summary>
    Unknown,

    /// <summary>One value per session, up to the last bar.</summary>
    Observed,

    /// <summary>One value per session, including future sessions.</summary>
    Known,

    /// <summary>One value per symbol.</summary>
    Static,
}
