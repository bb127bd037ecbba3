namespace Quantra.Desktop.Charts;

/// <summary>The vertical axis of a chart.</summary>
internal static class ValueAxis
{
    private const int Ticks = 6;

    /// <summary>Returns grid lines at round numbers, with their labels.</summary>
    public static IEnumerable<Shape> Draw(ValueScale across, ValueScale up, Func<double, string> text)
    {
        foreach (var tick in up.Ticks(Ticks))
        {
            var y = up.At(tick);
            yield return new Stroke([new(across.From, y), new(across.To, y)], Ink.Grid);
            yield return new Caption(new(across.From - 8, y), text(tick), Ink.Quiet, Anchor.End);
        }
    }
}
