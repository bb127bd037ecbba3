namespace Quantra.Client;

/// <summary>A question for the reasons behind one number of a forecast.</summary>
/// <param name="Instance">The question that the forecast answers.</param>
/// <param name="Horizon">Trading days ahead; one of the model's.</param>
/// <param name="Quantile">Level in (0, 1); one of the model's.</param>
public sealed record ExplanationRequest(PredictionRequest Instance, int Horizon, double Quantile = 0.5)
{
    /// <summary>
    /// Whose reasons, in this order; none = all of the instance's. A model that looks across a panel reads all of its bars
    /// whoever is asked about.
    /// </summary>
    public IReadOnlyList<string> Symbols { get; init; } = [];

    /// <summary>How fine the answer is.</summary>
    public ExplanationDetail Detail { get; init; }

    /// <summary>Largest relative gap between the contributions' sum and the difference to the baseline, in (0, 1).</summary>
    public double Tolerance { get; init; } = ManyExplanationsRequest.DefaultTolerance;

    /// <summary>The same question as one of several.</summary>
    internal ManyExplanationsRequest ToMany() =>
        new(Instance, [new(Horizon, Quantile)]) { Symbols = Symbols, Detail = Detail, Tolerance = Tolerance };
}
