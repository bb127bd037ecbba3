namespace Quantra.Desktop.Charts;

/// <summary>A position in pixels from the upper left corner.</summary>
public readonly record struct Point(double X, double Y);
