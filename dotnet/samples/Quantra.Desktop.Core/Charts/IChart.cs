namespace Quantra.Desktop.Charts;

/// <summary>A scalable chart.</summary>
public interface IChart
{
    /// <summary>Returns the shapes of the chart in drawing order.</summary>
    /// <param name="size">Size of the chart.</param>
    IReadOnlyList<Shape> Draw(ChartSize size);
}
