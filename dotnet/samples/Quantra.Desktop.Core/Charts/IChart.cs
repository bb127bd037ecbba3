namespace Quantra.Desktop.Charts;

/// <summary>A chart of any size.</summary>
public interface IChart
{
    /// <summary>The shapes, in the order in which they are drawn.</summary>
    /// <param name="size">Of the whole chart.</param>
    IReadOnlyList<Shape> Draw(ChartSize size);
}
