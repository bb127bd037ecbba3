namespace Quantra.Desktop.Charts;

/// <summary>A filled polygon.</summary>
/// <param name="Points">At least three points.</param>
/// <param name="Ink">Meaning of the area.</param>
/// <param name="Opacity">Opacity from 0 to 1.</param>
public sealed record Area(IReadOnlyList<Point> Points, Ink Ink, double Opacity = 1) : Shape(Ink);
