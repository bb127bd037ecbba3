namespace Quantra.Desktop.Charts;

/// <summary>A part of a chart: a <see cref="Stroke"/>, an <see cref="Area"/> or a <see cref="Caption"/>.</summary>
/// <param name="Ink">What it shows.</param>
public abstract record Shape(Ink Ink);
