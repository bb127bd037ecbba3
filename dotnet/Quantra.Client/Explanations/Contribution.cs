namespace Quantra.Client;

/// <summary>One row of an attribution: an input and its contribution.</summary>
/// <param name="Name">The input's name.</param>
/// <param name="Kind">The kind of input.</param>
/// <param name="Value">Signed, in the target's unit.</param>
public readonly record struct Contribution(string Name, RowKind Kind, double Value);
