namespace Quantra.Client;

/// <summary>One number of a symbol's forecast.</summary>
/// <param name="Horizon">Horizon of the model, in trading days.</param>
/// <param name="Quantile">Quantile of the model, in (0, 1).</param>
public sealed record ExplanationTarget(int Horizon, double Quantile = 0.5)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "q0.5 at 5 days".</returns>
    public override string ToString() => FormattableString.Invariant($"q{Quantile:0.###} at {MessageFormat.Count(Horizon, "day")}");
}
