namespace Quantra.Client;

/// <summary>One row of a global explanation: an input and how much it moves forecasts.</summary>
/// <param name="Name">The input's name.</param>
/// <param name="Kind">The kind of input.</param>
/// <param name="MeanSize">Mean of its absolute contributions, in the target's unit.</param>
/// <param name="StandardError">Of the mean; NaN = unknown.</param>
public readonly record struct InputImportance(string Name, RowKind Kind, double MeanSize, double StandardError)
{
    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "return_1 (Observed): 0.0012 ± 0.0001".</returns>
    public override string ToString() => FormattableString.Invariant($"{Name} ({Kind}): {MeanSize} ± {StandardError}");
}
