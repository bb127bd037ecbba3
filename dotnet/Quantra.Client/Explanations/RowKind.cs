namespace Quantra.Client;

/// <summary>Which kind of input an attribution's row stands for.</summary>
public enum RowKind
{
    /// <summary>A kind that this version of the client does not know.</summary>
    Unknown,

    /// <summary>A feature of the past.</summary>
    Observed,

    /// <summary>A feature that is also known of the future.</summary>
    Known,

    /// <summary>A feature that stays the same.</summary>
    Static,

    /// <summary>The window's own level.</summary>
    Location,

    /// <summary>The window's own volatility.</summary>
    Scale,

    /// <summary>The calibration's offset.</summary>
    Conformal,

    /// <summary>The other stocks that a forecast depends on, all their inputs together.</summary>
    Neighbours,
}
