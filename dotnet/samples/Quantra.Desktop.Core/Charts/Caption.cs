namespace Quantra.Desktop.Charts;

/// <summary>A line of text.</summary>
/// <param name="At">Position, at half the height of the text.</param>
/// <param name="Text">The text.</param>
/// <param name="Ink">Meaning of the text.</param>
/// <param name="Anchor">Part of the text at the position.</param>
public sealed record Caption(Point At, string Text, Ink Ink, Anchor Anchor = Anchor.Start) : Shape(Ink);
