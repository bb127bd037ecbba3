namespace Quantra.Client;

/// <summary>A request to explain several numbers of a forecast, which takes little longer than explaining one.</summary>
/// <param name="Instance">The request for the forecast.</param>
/// <param name="Targets">Numbers to explain; empty = every horizon, at the quantile nearest to 0.5.</param>
public sealed record ManyExplanationsRequest(PredictionRequest Instance, IReadOnlyList<ExplanationTarget> Targets)
{
    internal const double DefaultTolerance = 0.01;

    /// <inheritdoc cref="ExplanationRequest.Symbols"/>
    public IReadOnlyList<string> Symbols { get; init; } = [];

    /// <inheritdoc cref="ExplanationRequest.Method"/>
    public string Method { get; init; } = "";

    /// <summary>Detail of the attributions.</summary>
    public ExplanationDetail Detail { get; init; }

    /// <inheritdoc cref="ExplanationRequest.Tolerance"/>
    public double Tolerance { get; init; } = DefaultTolerance;

    /// <inheritdoc/>
    public bool Equals(ManyExplanationsRequest? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "q0.5 at 5 days, q0.9 at 20 days: forecast by small of bars of AAPL; 200 sessions, …".</returns>
    public override string ToString()
    {
        var targets = Targets.Count == 0 ? "every horizon" : MessageFormat.First([.. Targets.Select(target => target.ToString())]);
        return $"{targets}: {Instance}";
    }

    private object?[] Parts() =>
    [
        Instance,
        ValueEquality.Of(Targets),
        ValueEquality.Of(Symbols),
        Method,
        Detail,
        Tolerance,
    ];
}
