using System.Globalization;

namespace Quantra.Client.Testing;

/// <summary>Builds the response to a request for price paths. The answers follow from the paths.</summary>
/// <param name="Request">The request. Its seed has no effect.</param>
/// <example>
/// <code>
/// PathSimulation falling = new PathSimulationBuilder(request) { Return = (path, symbol, day) => -0.01 * day }.Build();
/// </code>
/// </example>
public sealed record PathSimulationBuilder(PathSimulationRequest Request)
{
    private const int FewestPastDays = 250;
    private const double DrawdownLevel = 0.95;

    /// <summary>The model that forecasts. Its longest horizon is the last day of the paths.</summary>
    /// <value>That of <see cref="ModelInfoBuilder"/> by default.</value>
    public ModelInfo Model { get; init; } = new ModelInfoBuilder().Build();

    /// <summary>Returns the log return of a path from 0, a symbol, and a day from 1. It counts from the last close.</summary>
    /// <value>By default each path keeps one quantile of the forecast by <see cref="ForecastBuilder"/>, from the lowest to the highest.</value>
    public Func<int, string, int, double>? Return { get; init; }

    /// <summary>Builds the response. Change its other properties with <c>with</c>.</summary>
    /// <returns>A valid response.</returns>
    /// <exception cref="ArgumentException">A return is not finite.</exception>
    /// <exception cref="QuantraException">A simulator rejects such a request too; see its Reason.</exception>
    public PathSimulation Build()
    {
        ArgumentNullException.ThrowIfNull(Request);
        ArgumentNullException.ThrowIfNull(Model);
        var builder = ForecastBuilder.For(Model, Request.Instance);
        var (forecast, days) = (builder.Build(), Model.Horizons[^1]);
        CheckRequest(forecast);
        double[] returns =
        [
            .. from path in Enumerable.Range(0, Request.Paths)
               from symbol in forecast.Symbols
               from day in Enumerable.Range(1, days)
               select Return is null ? builder.Usual(day, (path + 0.5) / Request.Paths) : Finite(Return(path, symbol, day), path, symbol, day),
        ];
        var paths = new PathSimulation
        {
            Symbols = forecast.Symbols,
            AsOf = forecast.AsOf,
            AnchorPrice = forecast.AnchorPrice!.Value,
            Days = days,
            Paths = Request.Paths,
            PastDays = FewestPastDays,
            ForecastId = forecast.ForecastId,
            Model = forecast.Model,
            Version = forecast.Version,
            Warnings = forecast.Warnings,
            Refusals = forecast.Refusals,
            Day = Request.Day ?? days,
            ValueAtRisk = null,
            ExpectedShortfall = null,
            Drawdown = null,
            PriceProbabilities = [],
            Returns = returns,
        };
        return AnswerQueries(paths) with { Returns = Request.IncludePaths ? paths.Returns : null };
    }

    private static double Finite(double value, int path, string symbol, int day) => double.IsFinite(value)
        ? value
        : throw new ArgumentException(FormattableString.Invariant($"Return of path {path} of {symbol} on day {day} is {value}; return finite values"));

    private static QuantraException Error(string reason, FormattableString message) =>
        new QuantraError(QuantraStatus.InvalidArgument, reason, message.ToString(CultureInfo.InvariantCulture)).ToException();

    /// <summary>The range is that of the two halves of the paths, every second path each.</summary>
    private static Estimate Estimate(double[] values, Func<double[], double> statistic)
    {
        var halves = values.Select((value, path) => (value, path)).GroupBy(one => one.path % 2, one => one.value);
        double[] found = [statistic(values), .. halves.Select(half => statistic([.. half]))];
        return new(found[0], found.Min(), found.Max());
    }

    /// <summary>Interpolates linearly between values.</summary>
    private static double ComputeQuantile(double[] values, double level)
    {
        double[] ordered = [.. values.Order()];
        var place = level * (ordered.Length - 1);
        var (below, above) = (ordered[(int)place], ordered[(int)Math.Ceiling(place)]);
        return below + ((place - Math.Floor(place)) * (above - below));
    }

    private static Estimate EstimateShare(IEnumerable<bool> outcomes) =>
        Estimate([.. outcomes.Select(isTrue => isTrue ? 1.0 : 0)], values => values.Average());

    private static PriceProbability EstimateProbability(PriceLevel level, PathSimulation paths)
    {
        var isHigher = level.Price >= paths.AnchorPrice.Span[paths.Symbols.ToList().IndexOf(level.Symbol)];
        double[][] closes = [.. Enumerable.Range(0, paths.Paths).Select(path => CollectCloses(path))];
        return new(
            level.Symbol,
            level.Price,
            EstimateShare(closes.Select(path => path[^1] > level.Price)),
            EstimateShare(closes.Select(path => isHigher ? path.Max() >= level.Price : path.Min() <= level.Price)));

        double[] CollectCloses(int path) => [.. Enumerable.Range(1, paths.Day).Select(day => paths.Price(path, level.Symbol, day))];
    }

    private static double ComputeDrawdown(double[] profits)
    {
        var (high, drawdown) = (0.0, 0.0);
        foreach (var profit in profits)
            (high, drawdown) = (Math.Max(high, profit), Math.Max(drawdown, high - profit));
        return drawdown;
    }

    private void CheckRequest(Forecast forecast)
    {
        if (forecast.Prices is null)
            throw Error(QuantraReason.InvalidInput, $"{Model.Name} forecasts {Model.TargetKind} with a lag of {Model.Lag}; paths need log returns without a lag");
        if (Request.Day > Model.Horizons[^1])
            throw Error(QuantraReason.UnknownHorizon, $"day {Request.Day} is not simulated; use 1 to {Model.Horizons[^1]}");
        if (Request.Holdings.Keys.Concat(Request.PriceLevels.Select(level => level.Symbol)).Except(forecast.Symbols).FirstOrDefault() is { } unknown)
            throw Error(QuantraReason.InvalidInput, $"there are no paths of {unknown}; there are paths of {string.Join(", ", forecast.Symbols)}");
        if (Request.PriceLevels.FirstOrDefault(level => level.Price is not (> 0 and < double.PositiveInfinity)) is { } bad)
            throw Error(QuantraReason.InvalidInput, $"price {bad.Price} is not above 0 and finite");
        if (Request.Holdings.Count > 0 && Request.Holdings.Values.All(value => value == 0))
            throw Error(QuantraReason.InvalidInput, $"all holdings are 0; give the value of at least one position");
    }

    private PathSimulation AnswerQueries(PathSimulation paths)
    {
        var answered = paths with { PriceProbabilities = [.. Request.PriceLevels.Select(level => EstimateProbability(level, paths))] };
        if (Request.Holdings.Count == 0)
            return answered;
        var total = Request.Holdings.Values.Sum(Math.Abs);
        double[][] profits = [.. Enumerable.Range(0, paths.Paths).Select(path => ComputeProfits(path, paths))];
        double[] last = [.. profits.Select(path => path[^1])];
        return answered with
        {
            ValueAtRisk = Estimate(last, values => -ComputeQuantile(values, 1 - Request.Level)),
            ExpectedShortfall = Estimate(last, ComputeShortfall),
            Drawdown = Estimate([.. profits.Select(path => ComputeDrawdown(path) / total)], values => ComputeQuantile(values, DrawdownLevel)),
        };
    }

    private double ComputeShortfall(double[] profits) =>
        -profits.Order().Take(Math.Max(1, (int)Math.Round((1 - Request.Level) * profits.Length))).Average();

    /// <summary>Returns the profits up to each day.</summary>
    private double[] ComputeProfits(int path, PathSimulation paths)
    {
        var start = paths.Symbols.Zip(paths.AnchorPrice.ToArray()).ToDictionary(one => one.First, one => one.Second);
        return
        [
            .. from day in Enumerable.Range(1, paths.Day)
               select Request.Holdings.Sum(one => one.Value * ((paths.Price(path, one.Key, day) / start[one.Key]) - 1)),
        ];
    }
}
