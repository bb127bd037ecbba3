namespace Quantra.Client;

/// <summary>A question for the reasons behind several numbers of a forecast, which takes little longer than one does.</summary>
/// <param name="Instance">The question that the forecast answers.</param>
/// <param name="Targets">Which numbers; none = every horizon, at the quantile nearest to 0.5.</param>
public sealed record ManyExplanationsRequest(PredictionRequest Instance, IReadOnlyList<ExplanationTarget> Targets)
{
    /// <summary>
    /// Whose reasons, in this order; none = all of the instance's. A model that looks across a panel reads all of its bars
    /// whoever is asked about.
    /// </summary>
    public IReadOnlyList<string> Symbols { get; init; } = [];

    /// <summary>How fine the answers are.</summary>
    public ExplanationDetail Detail { get; init; }

    /// <summary>Largest relative gap between the contributions' sum and the difference to the baseline, in (0, 1).</summary>
    public double Tolerance { get; init; } = 0.01;
}
