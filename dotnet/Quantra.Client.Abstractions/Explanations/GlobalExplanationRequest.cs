namespace Quantra.Client;

/// <summary>A request for what moves a model's forecasts in general: the mean size of each input's contribution over many of them.</summary>
/// <remarks>
/// Take days that lie as far apart as the horizon is long: neighbouring ones say much the same, and the standard error is then
/// too small.
/// </remarks>
/// <param name="Instances">The requests for the forecasts, at least one, all of one model.</param>
/// <param name="Targets">Which numbers of each; empty = every horizon, at the quantile nearest to 0.5.</param>
public sealed record GlobalExplanationRequest(IReadOnlyList<PredictionRequest> Instances, IReadOnlyList<ExplanationTarget> Targets)
{
    /// <inheritdoc cref="ExplanationRequest.Tolerance"/>
    public double Tolerance { get; init; } = ManyExplanationsRequest.DefaultTolerance;

    /// <inheritdoc/>
    public bool Equals(GlobalExplanationRequest? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "q0.5 at 5 days over 20 instances of small".</returns>
    public override string ToString()
    {
        var targets = Targets.Count == 0 ? "every horizon" : Listed.First([.. Targets.Select(target => target.ToString())]);
        return $"{targets} over {Listed.Count(Instances.Count, "instance")} of {(Instances.Count > 0 ? Instances[0].Model : "no model")}";
    }

    private object?[] Parts() =>
    [
        ByValue.Of(Instances),
        ByValue.Of(Targets),
        Tolerance,
    ];
}
