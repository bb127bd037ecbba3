namespace Quantra.Client;

/// <summary>A question for the reasons behind several numbers of a forecast, which takes little longer than one does.</summary>
/// <param name="Instance">The question that the forecast answers.</param>
/// <param name="Targets">Which numbers; none = every horizon, at the quantile nearest to 0.5.</param>
public sealed record ManyExplanationsRequest(PredictionRequest Instance, IReadOnlyList<ExplanationTarget> Targets)
{
    internal const double DefaultTolerance = 0.01;

    /// <inheritdoc cref="ExplanationRequest.Symbols"/>
    public IReadOnlyList<string> Symbols { get; init; } = [];

    /// <summary>How fine the answers are.</summary>
    public ExplanationDetail Detail { get; init; }

    /// <inheritdoc cref="ExplanationRequest.Tolerance"/>
    public double Tolerance { get; init; } = DefaultTolerance;
}
