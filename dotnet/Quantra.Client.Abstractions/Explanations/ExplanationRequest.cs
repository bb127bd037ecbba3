namespace Quantra.Client;

/// <summary>A request to explain one number of a forecast.</summary>
/// <param name="Instance">The request for the forecast.</param>
/// <param name="Horizon">Horizon of the model, in trading days.</param>
/// <param name="Quantile">Quantile of the model, in (0, 1).</param>
public sealed record ExplanationRequest(PredictionRequest Instance, int Horizon, double Quantile = 0.5)
{
    /// <summary>
    /// Symbols to explain, in this order; empty = all symbols of the instance. A model that looks across a panel reads the bars of all symbols
    /// in any case.
    /// </summary>
    public IReadOnlyList<string> Symbols { get; init; } = [];

    /// <summary>Method of the explanation, one of <see cref="ModelInfo.ExplainMethods"/>; empty = the first of them.</summary>
    public string Method { get; init; } = "";

    /// <summary>Detail of the attribution.</summary>
    public ExplanationDetail Detail { get; init; }

    /// <summary>Largest relative gap between the sum of the contributions and the difference from the baseline, in [0.0001, 1).</summary>
    public double Tolerance { get; init; } = ManyExplanationsRequest.DefaultTolerance;

    /// <inheritdoc/>
    public bool Equals(ExplanationRequest? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "q0.5 at 5 days: forecast by small of bars of AAPL; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
    public override string ToString() => ToMany().ToString();

    /// <summary>Converts the request to one for several numbers.</summary>
    /// <returns>A request with one target.</returns>
    public ManyExplanationsRequest ToMany() =>
        new(Instance, [new(Horizon, Quantile)]) { Symbols = Symbols, Method = Method, Detail = Detail, Tolerance = Tolerance };

    private object?[] Parts() =>
    [
        Instance,
        Horizon,
        Quantile,
        ValueEquality.Of(Symbols),
        Method,
        Detail,
        Tolerance,
    ];
}
