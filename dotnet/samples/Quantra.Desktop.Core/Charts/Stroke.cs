namespace Quantra.Desktop.Charts;

/// <summary>Points joined by a line.</summary>
/// <param name="Points">At least two.</param>
/// <param name="Ink">What it shows.</param>
/// <param name="Thickness">Pixels.</param>
/// <param name="IsDashed">Whether it has gaps.</param>
public sealed record Stroke(IReadOnlyList<Point> Points, Ink Ink, double Thickness = 1, bool IsDashed = false) : Shape(Ink);
