namespace Quantra.Client;

/// <summary>One entry of a <see cref="NetworkInternal"/>.</summary>
/// <param name="Label">A variable, or a session in words, for example "26 sessions before the last".</param>
/// <param name="Value">Share from 0 to 1.</param>
public readonly record struct Share(string Label, double Value)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "last session: 0.25".</returns>
    public override string ToString() => FormattableString.Invariant($"{Label}: {Value}");
}
