namespace Quantra.Desktop.Charts;

/// <summary>A polyline.</summary>
/// <param name="Points">At least two points.</param>
/// <param name="Ink">Meaning of the line.</param>
/// <param name="Thickness">Thickness in pixels.</param>
/// <param name="IsDashed">Whether the line is dashed.</param>
public sealed record Stroke(IReadOnlyList<Point> Points, Ink Ink, double Thickness = 1, bool IsDashed = false) : Shape(Ink);
