namespace Quantra.Desktop.Charts;

/// <summary>A filled polygon.</summary>
/// <param name="Points">At least three.</param>
/// <param name="Ink">What it shows.</param>
/// <param name="Opacity">0 to 1.</param>
public sealed record Area(IReadOnlyList<Point> Points, Ink Ink, double Opacity = 1) : Shape(Ink);
