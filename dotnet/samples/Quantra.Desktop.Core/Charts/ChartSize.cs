namespace Quantra.Desktop.Charts;

/// <summary>Size of a chart in pixels.</summary>
public readonly record struct ChartSize(double Width, double Height);
