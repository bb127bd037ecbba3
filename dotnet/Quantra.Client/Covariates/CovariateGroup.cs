namespace Quantra.Client;

/// <summary>How a model reads a covariate.</summary>
public enum CovariateGroup
{
    /// <summary>A way that this version of the client does not know.</summary>
    Unknown,

    /// <summary>Up to the last bar.</summary>
    Observed,

    /// <summary>Of the sessions ahead too.</summary>
    Known,

    /// <summary>One value a symbol.</summary>
    Static,
}
