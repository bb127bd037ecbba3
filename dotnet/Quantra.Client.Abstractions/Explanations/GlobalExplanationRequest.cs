namespace Quantra.Client;

/// <summary>A request for a global explanation: the mean absolute contribution of each input over many forecasts.</summary>
/// <remarks>
/// Choose days that are at least one horizon apart. Neighbouring days contain much the same information, and the standard error would be too
/// small.
/// </remarks>
/// <param name="Instances">Requests for the forecasts, at least one, all of one model.</param>
/// <param name="Targets">Numbers to explain; empty = every horizon, at the quantile nearest to 0.5.</param>
public sealed record GlobalExplanationRequest(IReadOnlyList<PredictionRequest> Instances, IReadOnlyList<ExplanationTarget> Targets)
{
    /// <inheritdoc cref="ExplanationRequest.Method"/>
    public string Method { get; init; } = "";

    /// <inheritdoc cref="ExplanationRequest.Tolerance"/>
    public double Tolerance { get; init; } = ManyExplanationsRequest.DefaultTolerance;

    /// <inheritdoc/>
    public bool Equals(GlobalExplanationRequest? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "q0.5 at 5 days over 20 instances of small".</returns>
    public override string ToString()
    {
        var targets = Targets.Count == 0 ? "every horizon" : MessageFormat.First([.. Targets.Select(target => target.ToString())]);
        return $"{targets} over {MessageFormat.Count(Instances.Count, "instance")} of {(Instances.Count > 0 ? Instances[0].Model : "no model")}";
    }

    private object?[] Parts() =>
    [
        ValueEquality.Of(Instances),
        ValueEquality.Of(Targets),
        Method,
        Tolerance,
    ];
}
