namespace Quantra.Desktop.Charts;

/// <summary>A place on a chart, in pixels from its upper left corner.</summary>
public readonly record struct Point(double X, double Y);
