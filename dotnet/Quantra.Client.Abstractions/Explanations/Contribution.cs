namespace Quantra.Client;

/// <summary>One row of an attribution: an input and its contribution.</summary>
/// <param name="Name">The input's name.</param>
/// <param name="Kind">The kind of input.</param>
/// <param name="Value">Signed, in the target's unit.</param>
public readonly record struct Contribution(string Name, RowKind Kind, double Value)
{
    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "return_1 (Observed): 0.0012".</returns>
    public override string ToString() => FormattableString.Invariant($"{Name} ({Kind}): {Value}");
}
