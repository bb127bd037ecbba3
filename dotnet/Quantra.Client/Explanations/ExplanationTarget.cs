namespace Quantra.Client;

/// <summary>One number of a symbol's forecast.</summary>
/// <param name="Horizon">Trading days ahead; one of the model's.</param>
/// <param name="Quantile">Level in (0, 1); one of the model's.</param>
public sealed record ExplanationTarget(int Horizon, double Quantile = 0.5);
