namespace Quantra.Client.Wire;

/// <summary>Computes the shapes of a feature window's arrays. The length of each last axis follows from the others.</summary>
/// <remarks>Lengths are rounded down: the predictor rejects an array whose shape does not fit its bytes.</remarks>
internal static class WindowShape
{
    /// <summary>[S, T, F] of the observed features.</summary>
    public static int[] Observed(FeatureWindow window) => Full(window.Observed.Length, window.Symbols.Count, window.EncoderLength);

    /// <summary>[S, T, F] of the mask.</summary>
    public static int[] Mask(FeatureWindow window) => Full(window.Mask.Length, window.Symbols.Count, window.EncoderLength);

    /// <summary>[S, T + D, K] of the known features.</summary>
    public static int[] Known(FeatureWindow window) =>
        Full(window.Known.Length, window.Symbols.Count, window.EncoderLength + window.FutureLength);

    /// <summary>[S, C] of the static features.</summary>
    public static int[] Static(FeatureWindow window) => Full(window.Static.Length, window.Symbols.Count);

    /// <summary>[S] or [S, H] of a location or scale, depending on its length.</summary>
    public static int[] Level(FeatureWindow window, ReadOnlyMemory<double> level)
    {
        var symbols = window.Symbols.Count;
        return level.Length > symbols && symbols > 0 ? Full(level.Length, symbols) : [level.Length];
    }

    private static int[] Full(int elements, params ReadOnlySpan<int> axes)
    {
        var cells = 1;
        foreach (var length in axes)
            cells *= length;
        return [.. axes, cells == 0 ? 0 : elements / cells];
    }
}
