namespace Quantra.Client;

/// <summary>A number from simulated paths, and its 90 % range over other draws of the past days.</summary>
/// <param name="Value">The number.</param>
/// <param name="Lower">Lower bound of the range.</param>
/// <param name="Upper">Upper bound of the range.</param>
/// <remarks>The range does not include errors of the forecast's quantiles.</remarks>
public sealed record Estimate(double Value, double Lower, double Upper)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "0.25 (0.2 to 0.3)".</returns>
    public override string ToString() => FormattableString.Invariant($"{Value} ({Lower} to {Upper})");
}
