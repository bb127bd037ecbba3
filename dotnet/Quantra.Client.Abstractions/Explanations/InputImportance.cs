namespace Quantra.Client;

/// <summary>One row of a global explanation: an input and how much it moves forecasts.</summary>
/// <param name="Name">Name of the input.</param>
/// <param name="Kind">Kind of the input.</param>
/// <param name="MeanSize">Mean absolute contribution, in the target's unit.</param>
/// <param name="StandardError">Standard error of the mean; NaN = unknown.</param>
public readonly record struct InputImportance(string Name, RowKind Kind, double MeanSize, double StandardError)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "return_1 (Observed): 0.0012 ± 0.0001".</returns>
    public override string ToString() => FormattableString.Invariant($"{Name} ({Kind}): {MeanSize} ± {StandardError}");
}
