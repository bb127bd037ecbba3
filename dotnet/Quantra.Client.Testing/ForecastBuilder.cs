namespace Quantra.Client.Testing;

/// <summary>Builds a forecast from defaults. Shapes are consistent, quantiles do not cross, and prices follow from returns.</summary>
/// <example>
/// <code>
/// Forecast forecast = new ForecastBuilder { Symbols = ["AAPL", "IBM"], Value = (symbol, days, level) => 0.01 * level }.Build();
/// </code>
/// </example>
public sealed record ForecastBuilder
{
    private const string Returns = "log-return";
    private const double DailySize = 0.01; // of a return
    private const double LogVolatility = -4.5;

    /// <inheritdoc cref="Forecast.Symbols"/>
    /// <value>"AAPL" by default.</value>
    public IReadOnlyList<string> Symbols { get; init; } = ["AAPL"];

    /// <inheritdoc cref="Forecast.Horizons"/>
    /// <value>1, 5, 10 and 20 by default.</value>
    public IReadOnlyList<int> Horizons { get; init; } = ModelInfoBuilder.DefaultHorizons;

    /// <inheritdoc cref="Forecast.Quantiles"/>
    /// <value>0.1, 0.5 and 0.9 by default.</value>
    public IReadOnlyList<double> Quantiles { get; init; } = ModelInfoBuilder.DefaultQuantiles;

    /// <summary>Session of the last bar.</summary>
    /// <value>2024-06-28 by default, a Friday. The forecast sessions are the following weekdays.</value>
    public DateOnly AsOf { get; init; } = new(2024, 6, 28);

    /// <inheritdoc cref="Forecast.Lag"/>
    public int Lag { get; init; }

    /// <inheritdoc cref="Forecast.TargetKind"/>
    /// <value>"log-return" by default.</value>
    public string TargetKind { get; init; } = Returns;

    /// <summary>Returns the value of a symbol, horizon and quantile, in the target's unit. It must not decrease between quantiles.</summary>
    /// <value>By default a fan around 0 (around -4.5 for volatilities) that grows with the square root of the horizon.</value>
    public Func<string, int, double, double>? Value { get; init; }

    /// <summary>Returns the last close of a symbol.</summary>
    /// <value>100 by default.</value>
    public Func<string, double> LastClose { get; init; } = _ => 100;

    /// <summary>Returns the score of a symbol and horizon, for a model that ranks; null = none.</summary>
    public Func<string, int, double>? Score { get; init; }

    /// <inheritdoc cref="Forecast.Model"/>
    /// <value>"stock" by default.</value>
    public string Model { get; init; } = "stock";

    /// <inheritdoc cref="Forecast.Version"/>
    /// <value>1 by default.</value>
    public int Version { get; init; } = 1;

    /// <inheritdoc cref="Forecast.Warnings"/>
    public IReadOnlyList<string> Warnings { get; init; } = [];

    /// <summary>Errors of symbols without a forecast. Their values are NaN.</summary>
    public IReadOnlyDictionary<string, QuantraError> Refusals { get; init; } = new Dictionary<string, QuantraError>();

    /// <inheritdoc cref="Forecast.Skill"/>
    public Skill? Skill { get; init; }

    /// <summary>Creates a builder with the shape of a model's forecast for a request: its horizons, and the symbols and last closes of the bars.</summary>
    /// <param name="model">The model.</param>
    /// <param name="request">The request.</param>
    /// <returns>A builder with default values.</returns>
    public static ForecastBuilder For(ModelInfo model, PredictionRequest request)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(request);
        var (bars, builder) = (request.Bars, new ForecastBuilder());
        return new ForecastBuilder
        {
            Symbols = bars?.Symbols ?? request.Window?.Symbols ?? builder.Symbols,
            AsOf = bars is { Sessions.IsEmpty: false } ? bars.Sessions.Span[^1] : request.Window?.AsOf ?? builder.AsOf,
            LastClose = bars is { Close.IsEmpty: false } ? symbol => bars.Select(symbol).Close.Span[^1] : builder.LastClose,
            Horizons = model.Horizons,
            Quantiles = model.Quantiles,
            Lag = model.Lag,
            TargetKind = model.TargetKind,
            Model = model.Name,
            Version = model.Version,
        };
    }

    /// <summary>Builds the forecast. Change its other properties with <c>with</c>.</summary>
    /// <returns>A valid forecast.</returns>
    /// <exception cref="ArgumentException">
    /// Symbols, horizons or quantiles are out of order or out of range, values decrease between quantiles, or a refusal is for an unknown symbol.
    /// </exception>
    public Forecast Build()
    {
        CheckAll();
        var values = Each(ComputeNumber);
        var isReturn = TargetKind == Returns;
        var first = Weekdays.After(AsOf, Lag);
        double[] closes = [.. Symbols.Select(LastClose)];
        return new Forecast
        {
            Symbols = Symbols,
            AsOf = AsOf,
            TargetSessions = [.. Horizons.Select(horizon => Weekdays.After(first, horizon))],
            Lag = Lag,
            BaseSession = first,
            Horizons = Horizons,
            Quantiles = Quantiles,
            TargetKind = TargetKind,
            Values = values,
            Returns = isReturn ? (ReadOnlyMemory<double>?)values : null,
            Prices = isReturn && Lag == 0 ? ComputePrices(values, closes) : (ReadOnlyMemory<double>?)null,
            AnchorPrice = closes,
            Model = Model,
            Version = Version,
            WeightsHash = ModelInfoBuilder.Weights,
            Warnings = Warnings,
            ForecastId = FormattableString.Invariant($"{Model}@{Version} {AsOf:yyyyMMdd} {string.Join(' ', Symbols)}"),
            Scores = Score is null ? (ReadOnlyMemory<double>?)null : ComputeScores(),
            Ranks = Score is null ? (ReadOnlyMemory<int>?)null : ComputeRanks(ComputeScores()),
            UniverseHash = Score is null ? "" : string.Join(' ', Symbols),
            Refusals = Refusals,
            Skill = Skill,
        };
    }

    /// <summary>Quantile of a logistic distribution, which needs no table, in units of the daily size.</summary>
    internal double Usual(int horizon, double quantile)
    {
        var spread = 0.55 * Math.Log(quantile / (1 - quantile));
        return TargetKind == Returns ? DailySize * Math.Sqrt(horizon) * spread : LogVolatility + (0.3 * spread);
    }

    private double ComputeNumber(string symbol, int horizon, double quantile)
    {
        if (Refusals.ContainsKey(symbol))
            return double.NaN;
        return Value is null ? Usual(horizon, quantile) : Value(symbol, horizon, quantile);
    }

    private double[] Each(Func<string, int, double, double> number) =>
    [
        .. from symbol in Symbols
           from horizon in Horizons
           from quantile in Quantiles
           select number(symbol, horizon, quantile),
    ];

    private double[] ComputePrices(double[] returns, double[] closes) =>
        [.. returns.Select((value, cell) => closes[cell / (Horizons.Count * Quantiles.Count)] * Math.Exp(value))];

    private double[] ComputeScores() =>
    [
        .. from symbol in Symbols
           from horizon in Horizons
           select Refusals.ContainsKey(symbol) ? double.NaN : Score!(symbol, horizon),
    ];

    /// <summary>[S, H] rank by score, 1 = best, 0 = none.</summary>
    private int[] ComputeRanks(double[] scores)
    {
        var ranks = new int[scores.Length];
        for (var index = 0; index < scores.Length; index++)
        {
            var rivals = Enumerable.Range(0, Symbols.Count).Select(row => scores[(row * Horizons.Count) + (index % Horizons.Count)]);
            ranks[index] = double.IsNaN(scores[index]) ? 0 : 1 + rivals.Count(rival => rival > scores[index]);
        }

        return ranks;
    }

    private void CheckAll()
    {
        ArgumentNullException.ThrowIfNull(Refusals);
        ArgumentNullException.ThrowIfNull(LastClose);
        Check.Symbols(Symbols);
        Check.Horizons(Horizons);
        Check.Quantiles(Quantiles);
        if (Refusals.Keys.Except(Symbols).FirstOrDefault() is { } unknown)
            throw new ArgumentException($"Refusals has {unknown}, which is not one of the symbols {string.Join(", ", Symbols)}");
        foreach (var symbol in Symbols)
        {
            foreach (var horizon in Horizons)
                CheckOrder(symbol, horizon);
        }
    }

    private void CheckOrder(string symbol, int horizon)
    {
        foreach (var (low, high) in Quantiles.Zip(Quantiles.Skip(1)))
        {
            var (one, other) = (ComputeNumber(symbol, horizon, low), ComputeNumber(symbol, horizon, high));
            if (one > other)
            {
                throw new ArgumentException(FormattableString.Invariant(
                    $"Value of {symbol} at {horizon} days decreases from {one} at quantile {low} to {other} at {high}; make the quantiles increase"));
            }
        }
    }
}
