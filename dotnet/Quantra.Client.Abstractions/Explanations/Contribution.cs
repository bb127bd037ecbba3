namespace Quantra.Client;

/// <summary>One row of an attribution: an input and its contribution.</summary>
/// <param name="Name">Name of the input.</param>
/// <param name="Kind">Kind of the input.</param>
/// <param name="Value">Signed contribution, in the target's unit.</param>
public readonly record struct Contribution(string Name, RowKind Kind, double Value)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "return_1 (Observed): 0.0012".</returns>
    public override string ToString() => FormattableString.Invariant($"{Name} ({Kind}): {Value}");
}
