namespace Quantra.Client;

/// <summary>Kind of the input in a row of an attribution.</summary>
public enum RowKind
{
    /// <summary>A kind that this version of the client does not know.</summary>
    Unknown,

    /// <summary>A feature of the past.</summary>
    Observed,

    /// <summary>A feature that is also known for the future.</summary>
    Known,

    /// <summary>A static feature.</summary>
    Static,

    /// <summary>The location of the window.</summary>
    Location,

    /// <summary>The scale (volatility) of the window.</summary>
    Scale,

    /// <summary>The offset of the conformal calibration.</summary>
    Conformal,

    /// <summary>All inputs of other stocks that the forecast depends on, together.</summary>
    Neighbours,
}
