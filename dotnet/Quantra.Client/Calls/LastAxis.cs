namespace Quantra.Client;

/// <summary>The length of an array's last axis, which follows from the others.</summary>
internal static class LastAxis
{
    /// <summary>Elements divided by the lengths of the axes before the last.</summary>
    /// <remarks>Rounded down: the predictor refuses an array whose shape does not fit its bytes.</remarks>
    public static int Of(int elements, params ReadOnlySpan<int> axes)
    {
        var cells = 1;
        foreach (var length in axes)
            cells *= length;
        return cells == 0 ? 0 : elements / cells;
    }
}
