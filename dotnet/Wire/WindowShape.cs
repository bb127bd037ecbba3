namespace Quantra.Client.Wire;

/// <summary>The shapes of a feature window's arrays; the length of each last axis follows from the others.</summary>
/// <remarks>It is rounded down: the predictor refuses an array whose shape does not fit its bytes.</remarks>
internal static class WindowShape
{
    /// <summary>[S, T, F] of what was observed.</summary>
    public static int[] Observed(FeatureWindow window) => Full(window.Observed.Length, window.Symbols.Count, window.EncoderLength);

    /// <summary>[S, T, F] of the mask.</summary>
    public static int[] Mask(FeatureWindow window) => Full(window.Mask.Length, window.Symbols.Count, window.EncoderLength);

    /// <summary>[S, T + D, K] of what is known ahead.</summary>
    public static int[] Known(FeatureWindow window) =>
        Full(window.Known.Length, window.Symbols.Count, window.EncoderLength + window.FutureLength);

    /// <summary>[S, C] of what is static.</summary>
    public static int[] Static(FeatureWindow window) => Full(window.Static.Length, window.Symbols.Count);

    /// <summary>[S] or [S, H] of a level, depending on its length.</summary>
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
