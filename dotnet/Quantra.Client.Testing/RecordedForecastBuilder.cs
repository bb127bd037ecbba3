namespace Quantra.Client.Testing;

/// <summary>Builds the record of one symbol's forecast, and of its outcomes, from a forecast.</summary>
/// <example>
/// <code>
/// var due = new RecordedForecastBuilder { Forecast = new ForecastBuilder { Symbols = ["IBM"] }.Build(), Outcome = _ => 0.01 }.Build();
/// </code>
/// </example>
public sealed record RecordedForecastBuilder
{
    /// <summary>The forecast.</summary>
    /// <value>That of <see cref="ForecastBuilder"/> by default.</value>
    public Forecast Forecast { get; init; } = new ForecastBuilder().Build();

    /// <summary>One of the forecast's symbols.</summary>
    /// <value>The first one by default.</value>
    public string? Symbol { get; init; }

    /// <inheritdoc cref="RecordedForecast.Role"/>
    public ForecastRole Role { get; init; } = ForecastRole.Champion;

    /// <inheritdoc cref="RecordedForecast.IsProspective"/>
    /// <value>True by default.</value>
    public bool IsProspective { get; init; } = true;

    /// <summary>Returns the value after a horizon, in the target's unit; null = the horizon is not due yet.</summary>
    /// <value>No horizon is due by default.</value>
    public Func<int, double?> Outcome { get; init; } = _ => null;

    /// <summary>Builds the record. Change its other properties with <c>with</c>.</summary>
    /// <returns>A record whose outcomes have the scores that follow from the values.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the symbol, or does not know its sessions.</exception>
    public RecordedForecast Build()
    {
        ArgumentNullException.ThrowIfNull(Forecast);
        ArgumentNullException.ThrowIfNull(Outcome);
        var symbol = Symbol ?? Forecast.Symbols[0];
        var row = Forecast.Symbols.ToList().IndexOf(symbol);
        if (row < 0 || Forecast.TargetSessions.Count == 0)
            throw new ArgumentException($"the forecast of {string.Join(", ", Forecast.Symbols)} has no sessions of {symbol}; choose one of its symbols");
        var cells = Forecast.Horizons.Count * Forecast.Quantiles.Count;
        return new()
        {
            ForecastId = Forecast.ForecastId,
            Symbol = symbol,
            Role = Role,
            Model = Forecast.Model,
            Version = Forecast.Version,
            WeightsHash = Forecast.WeightsHash,
            AsOf = Forecast.AsOf,
            BaseSession = Forecast.BaseSession,
            TargetKind = Forecast.TargetKind,
            Horizons = Forecast.Horizons,
            TargetSessions = Forecast.TargetSessions,
            Quantiles = Forecast.Quantiles,
            Values = Forecast.Values.Slice(row * cells, cells),
            AnchorPrice = Forecast.AnchorPrice?.Span[row],
            IsProspective = IsProspective,
            MadeAt = new(Forecast.AsOf!.Value, default, TimeSpan.Zero),
            Outcomes = [.. Forecast.Horizons.Select((horizon, place) => CreateOutcome(symbol, horizon, Forecast.TargetSessions[place])).OfType<RecordedOutcome>()],
        };
    }

    private RecordedOutcome? CreateOutcome(string symbol, int horizon, DateOnly session)
    {
        if (Outcome(horizon) is not { } value)
            return null;
        double[] quantiles = [.. Forecast.Quantiles.Select(level => Forecast.Value(symbol, horizon, level))];
        var losses = quantiles.Zip(Forecast.Quantiles, (quantile, level) => Math.Max(level * (value - quantile), (level - 1) * (value - quantile)));
        var isInside = value >= quantiles[0] && value <= quantiles[^1];
        return new(horizon, session, 0, OutcomeStatus.Scored, value, "", losses.Average(), isInside, Level(value, quantiles));
    }

    /// <summary>Interpolates the level of a value between the quantiles. Beyond them it is that of the outermost quantile.</summary>
    private double Level(double value, double[] quantiles)
    {
        var above = Array.FindIndex(quantiles, quantile => quantile > value);
        if (above <= 0)
            return above == 0 ? Forecast.Quantiles[0] : Forecast.Quantiles[^1];
        var share = (value - quantiles[above - 1]) / (quantiles[above] - quantiles[above - 1]);
        return Forecast.Quantiles[above - 1] + (share * (Forecast.Quantiles[above] - Forecast.Quantiles[above - 1]));
    }
}
