namespace Quantra.Desktop.Charts;

/// <summary>An element of a chart: a <see cref="Stroke"/>, an <see cref="Area"/> or a <see cref="Caption"/>.</summary>
/// <param name="Ink">Meaning of the shape.</param>
public abstract record Shape(Ink Ink);
