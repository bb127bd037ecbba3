namespace Quantra.Client;

/// <summary>How a model reads a covariate.</summary>
public enum CovariateGroup
{
    /// <summary>A group that this version of the client does not know.</summary>
    Unknown,

    /// <summary>One value per session, up to the last bar.</summary>
    Observed,

    /// <summary>One value per session, for the sessions ahead too.</summary>
    Known,

    /// <summary>One value per symbol.</summary>
    Static,
}
