namespace Quantra.Client;

/// <summary>The kind of input that a row of an attribution stands for.</summary>
public enum RowKind
{
    /// <summary>A kind that this version of the client does not know.</summary>
    Unknown,

    /// <summary>A feature of the past.</summary>
    Observed,

    /// <summary>A feature that is also known of the future.</summary>
    Known,

    /// <summary>A static feature.</summary>
    Static,

    /// <summary>The level of the window.</summary>
    Location,

    /// <summary>The volatility of the window.</summary>
    Scale,

    /// <summary>The calibration's offset.</summary>
    Conformal,

    /// <summary>All inputs of the other stocks that a forecast depends on, together.</summary>
    Neighbours,
}
