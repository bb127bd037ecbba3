namespace Quantra.Client;

/// <summary>One entry of a <see cref="NetworkInternal"/>.</summary>
/// <param name="Label">A variable, or a session in words, such as "26 sessions before the last".</param>
/// <param name="Value">Its share of the whole, 0 to 1.</param>
public readonly record struct Share(string Label, double Value)
{
    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "last session: 0.25".</returns>
    public override string ToString() => FormattableString.Invariant($"{Label}: {Value}");
}
