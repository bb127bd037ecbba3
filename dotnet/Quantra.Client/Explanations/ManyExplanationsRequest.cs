namespace Quantra.Client;

/// <summary>A request to explain several numbers of a forecast, which takes little longer than explaining one.</summary>
/// <param name="Instance">The request for the forecast.</param>
/// <param name="Targets">Which numbers; empty = every horizon, at the quantile nearest to 0.5.</param>
public sealed record ManyExplanationsRequest(PredictionRequest Instance, IReadOnlyList<ExplanationTarget> Targets)
{
    internal const double DefaultTolerance = 0.01;

    /// <inheritdoc cref="ExplanationRequest.Symbols"/>
    public IReadOnlyList<string> Symbols { get; init; } = [];

    /// <summary>How detailed the answers are.</summary>
    public ExplanationDetail Detail { get; init; }

    /// <inheritdoc cref="ExplanationRequest.Tolerance"/>
    public double Tolerance { get; init; } = DefaultTolerance;
}
