namespace Quantra.Client;

/// <summary>One symbol's forecast in a ledger, with H horizons, Q quantiles and the outcomes so far.</summary>
public sealed record RecordedForecast
{
    /// <summary><see cref="Forecast.ForecastId"/> of the forecast.</summary>
    public required string ForecastId { get; init; }

    /// <summary>The symbol.</summary>
    public required string Symbol { get; init; }

    /// <summary>Why the forecast was made.</summary>
    public required ForecastRole Role { get; init; }

    /// <summary>Name of the model.</summary>
    public required string Model { get; init; }

    /// <summary>Version of the model.</summary>
    public required int Version { get; init; }

    /// <summary>SHA-256 of the model's weights.</summary>
    public required string WeightsHash { get; init; }

    /// <summary>Session of the last bar; null if a client sent feature windows without it.</summary>
    public required DateOnly? AsOf { get; init; }

    /// <summary>The session from which horizons, and so returns, are counted; null if unknown.</summary>
    public required DateOnly? BaseSession { get; init; }

    /// <summary>"log-return" or "log-volatility".</summary>
    public required string TargetKind { get; init; }

    /// <summary>H horizons in trading days.</summary>
    public required IReadOnlyList<int> Horizons { get; init; }

    /// <summary>[H] session on which each horizon ends; empty if <see cref="AsOf"/> is null.</summary>
    public required IReadOnlyList<DateOnly> TargetSessions { get; init; }

    /// <summary>Q levels, in increasing order, each in (0, 1).</summary>
    public required IReadOnlyList<double> Quantiles { get; init; }

    /// <summary>[H, Q] in the target's unit, row-major, non-decreasing along Q.</summary>
    public required ReadOnlyMemory<double> Values { get; init; }

    /// <summary>Close of <see cref="AsOf"/>, not adjusted; null if unknown.</summary>
    public required double? AnchorPrice { get; init; }

    /// <summary>Whether the ledger had no later bar when the forecast was recorded. Only such forecasts count as evidence.</summary>
    public required bool IsProspective { get; init; }

    /// <summary>When it was made, by the clock of the machine that made it.</summary>
    public required DateTimeOffset MadeAt { get; init; }

    /// <summary>Ordered by horizon and revision; empty until the first horizon is due.</summary>
    public required IReadOnlyList<RecordedOutcome> Outcomes { get; init; }

    /// <summary>Returns one value of the forecast.</summary>
    /// <param name="horizon">One of <see cref="Horizons"/>.</param>
    /// <param name="quantile">One of <see cref="Quantiles"/>.</param>
    /// <returns>Value in the target's unit, for example a log return.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the horizon or quantile.</exception>
    public double Value(int horizon, double quantile)
    {
        var row = Axis.IndexOf(Horizons, horizon, nameof(horizon));
        return Values.Span[(row * Quantiles.Count) + Axis.IndexOf(Quantiles, quantile, nameof(quantile))];
    }

    /// <summary>Returns the first outcome of a horizon, which counts as evidence.</summary>
    /// <param name="horizon">One of <see cref="Horizons"/>.</param>
    /// <returns>The outcome; null = the horizon is not due yet.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the horizon.</exception>
    public RecordedOutcome? Outcome(int horizon)
    {
        _ = Axis.IndexOf(Horizons, horizon, nameof(horizon));
        return Outcomes.FirstOrDefault(outcome => outcome.Horizon == horizon);
    }

    /// <inheritdoc/>
    public bool Equals(RecordedForecast? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@1 as of 2013-03-01: AAPL, Champion, outcomes of 1 of 3 horizons".</returns>
    public override string ToString()
    {
        var due = Horizons.Count(horizon => Outcome(horizon) is not null);
        return FormattableString.Invariant(
            $"{Model}@{Version}{MessageFormat.AsOf(AsOf)}: {Symbol}, {Role}, outcomes of {due} of {MessageFormat.Count(Horizons.Count, "horizon")}");
    }

    private object?[] Parts() =>
    [
        ForecastId,
        Symbol,
        Role,
        Model,
        Version,
        WeightsHash,
        AsOf,
        BaseSession,
        TargetKind,
        ValueEquality.Of(Horizons),
        ValueEquality.Of(TargetSessions),
        ValueEquality.Of(Quantiles),
        ValueEquality.Of(Values),
        AnchorPrice,
        IsProspective,
        MadeAt,
        ValueEquality.Of(Outcomes),
    ];
}
