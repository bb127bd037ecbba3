namespace Quantra.Desktop.Charts;

/// <summary>A line of text.</summary>
/// <param name="At">Its place, at half its height.</param>
/// <param name="Text">What it says.</param>
/// <param name="Ink">What it shows.</param>
/// <param name="Anchor">Which part of it stands there.</param>
public sealed record Caption(Point At, string Text, Ink Ink, Anchor Anchor = Anchor.Start) : Shape(Ink);
