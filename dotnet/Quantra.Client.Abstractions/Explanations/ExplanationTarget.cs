namespace Quantra.Client;

/// <summary>One number of a symbol's forecast.</summary>
/// <param name="Horizon">Trading days ahead; one of the model's.</param>
/// <param name="Quantile">Level in (0, 1); one of the model's.</param>
public sealed record ExplanationTarget(int Horizon, double Quantile = 0.5)
{
    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "q0.5 at 5 days".</returns>
    public override string ToString() => FormattableString.Invariant($"q{Quantile:0.###} at {Listed.Count(Horizon, "day")}");
}
