namespace Quantra.Client.Managed;

/// <summary>Bars of S symbols on T sessions, adjusted for splits and dividends; arrays are [S, T], NaN = no bar.</summary>
internal sealed class AdjustedBars
{
    /// <summary>Number of symbols.</summary>
    public required int Symbols { get; init; }

    /// <summary>Number of sessions.</summary>
    public required int Sessions { get; init; }

    /// <summary>Adjusted to the price level of the symbol's last bar, like high, low and close.</summary>
    public required double[] Open { get; init; }

    /// <summary>The day's highest price.</summary>
    public required double[] High { get; init; }

    /// <summary>The day's lowest price.</summary>
    public required double[] Low { get; init; }

    /// <summary>The last close equals the raw price.</summary>
    public required double[] Close { get; init; }

    /// <summary>Counted in shares of the last bar.</summary>
    public required double[] Volume { get; init; }

    /// <summary>Raw close times raw volume, which splits do not change.</summary>
    public required double[] Money { get; init; }
}
