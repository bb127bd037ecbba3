namespace Quantra.Client.Managed;

/// <summary>N paths of S symbols over D days after the last bar. Row n of all symbols is one joint path.</summary>
internal sealed class PricePaths
{
    /// <summary>Level of the drawdown in an answer.</summary>
    private const double DrawdownLevel = 0.95;

    /// <summary>Largest holding, so that no profit overflows.</summary>
    private const double LargestHolding = 1e100;
    private const int Replicates = 200;

    /// <summary>Probability of the ranges of estimates.</summary>
    private const double Range = 0.9;

    private int[][]? _drawnAgain;

    /// <summary>Reduces one value per path to a number.</summary>
    private delegate double Statistic(double[] values);

    public required string[] Symbols { get; init; }

    /// <summary>D</summary>
    public required int Days { get; init; }

    /// <summary>N</summary>
    public required int Count { get; init; }

    /// <summary>[N, S, D] log returns from the last close to the close of each day.</summary>
    public required double[] Returns { get; init; }

    /// <summary>[S] last close, in the bars' currency.</summary>
    public required double[] AnchorPrice { get; init; }

    public required long Seed { get; init; }

    /// <summary>[N] the past day that each path comes from.</summary>
    public required int[] Origins { get; init; }

    /// <summary>Usable past days.</summary>
    public required int PastDays { get; init; }

    /// <summary>The error of each symbol without paths.</summary>
    public required Dictionary<string, QuantraError> Refusals { get; init; }

    /// <summary>Answers the questions of a request.</summary>
    /// <exception cref="QuantraException">UNKNOWN_HORIZON: the day is not simulated. INVALID_INPUT: a symbol has no paths, or a number is impossible.</exception>
    public PathSimulation Answer(PathSimulationRequest request, Forecast forecast)
    {
        var day = request.Day ?? Days;
        if (day < 1 || day > Days)
        {
            throw PredictionError.Of(
                QuantraStatus.InvalidArgument,
                QuantraReason.UnknownHorizon,
                FormattableString.Invariant($"day {day} is not simulated; use 1 to {Days}")).ToException();
        }

        PriceProbability[] prices = [.. request.PriceLevels.Select(one => AnswerPrice(one, day))];
        var profits = request.Holdings.Count > 0 ? ComputeProfits(request.Holdings, day) : null;
        var atEnd = profits is null ? null : Column(profits, day);
        return new PathSimulation
        {
            Symbols = Symbols,
            AsOf = forecast.AsOf,
            AnchorPrice = AnchorPrice,
            Days = Days,
            Paths = Count,
            PastDays = PastDays,
            ForecastId = forecast.ForecastId,
            Model = forecast.Model,
            Version = forecast.Version,
            Warnings = forecast.Warnings,
            Refusals = Refusals,
            Day = day,
            ValueAtRisk = atEnd is null ? null : Estimate(atEnd, values => -Quantile(values, 1 - request.Level)),
            ExpectedShortfall = atEnd is null ? null : Estimate(atEnd, values => ComputeShortfall(values, request.Level)),
            Drawdown = profits is null ? null : Estimate(ComputeDrawdowns(profits, request.Holdings.Values.Sum(Math.Abs), day), values => Quantile(values, DrawdownLevel)),
            PriceProbabilities = prices,
            Returns = request.IncludePaths ? Returns : (ReadOnlyMemory<double>?)null,
        };
    }

    private static double Quantile(double[] values, double level)
    {
        double[] sorted = [.. values];
        Array.Sort(sorted);
        return PathStatistics.Quantile(sorted, level);
    }

    /// <summary>The mean loss in the worst 1 - level of the paths, at least one path.</summary>
    private static double ComputeShortfall(double[] profits, double level)
    {
        double[] sorted = [.. profits];
        Array.Sort(sorted);
        var worst = Math.Max(1, (int)Math.Round((1 - level) * sorted.Length, MidpointRounding.ToEven));
        return -PathStatistics.Mean(sorted.AsSpan(0, worst));
    }

    /// <summary>[N] the last of [N, day] values.</summary>
    private static double[] Column(double[] values, int day) => [.. Enumerable.Range(1, values.Length / day).Select(path => values[(path * day) - 1])];

    private PriceProbability AnswerPrice(PriceLevel level, int day)
    {
        if (!(level.Price > 0 && level.Price < double.PositiveInfinity))
            throw PathError.Invalid($"price {NumberText.General(level.Price)} is not above 0 and finite");
        var row = RowOf(level.Symbol);
        var isAbove = level.Price >= AnchorPrice[row];
        var (above, touched) = (new double[Count], new double[Count]);
        for (var path = 0; path < Count; path++)
        {
            for (var k = 0; k < day; k++)
            {
                var close = AnchorPrice[row] * Math.Exp(Returns[(((path * Symbols.Length) + row) * Days) + k]);
                if (isAbove ? close >= level.Price : close <= level.Price)
                    touched[path] = 1;
                above[path] = close > level.Price ? 1 : 0;
            }
        }

        return new(level.Symbol, level.Price, Estimate(above, values => PathStatistics.Mean(values)), Estimate(touched, values => PathStatistics.Mean(values)));
    }

    /// <summary>[N, day] profits up to each close, in the unit of the holdings.</summary>
    private double[] ComputeProfits(IReadOnlyDictionary<string, double> holdings, int day)
    {
        (int Row, double Value)[] held = [.. holdings.Select(one => (RowOf(one.Key), one.Value))];
        foreach (var (symbol, value) in holdings)
        {
            if (!(Math.Abs(value) <= LargestHolding))
                throw PathError.Invalid($"the holding of {symbol} is {NumberText.General(value)}; give a value of at most {NumberText.General(LargestHolding)}");
        }

        if (Array.TrueForAll(held, one => one.Value == 0))
            throw PathError.Invalid("all holdings are 0; give the value of at least one position, such as {'AAPL': 1000.0}");
        var profits = new double[Count * day];
        for (var cell = 0; cell < profits.Length; cell++)
        {
            foreach (var (row, value) in held)
                profits[cell] += (Math.Exp(Returns[((((cell / day) * Symbols.Length) + row) * Days) + (cell % day)]) - 1) * value;
        }

        return profits;
    }

    /// <summary>[N] largest loss from an earlier high, between closes from today, as a share of the value of all holdings.</summary>
    private double[] ComputeDrawdowns(double[] profits, double total, int day)
    {
        var drawdowns = new double[Count];
        for (var path = 0; path < Count; path++)
        {
            var high = 0.0;
            for (var k = 0; k < day; k++)
            {
                var gain = profits[(path * day) + k] / total;
                high = Math.Max(high, gain);
                drawdowns[path] = Math.Max(drawdowns[path], high - gain);
            }
        }

        return drawdowns;
    }

    /// <summary>A statistic of one value per path; its range comes from drawing blocks of past days again.</summary>
    private Estimate Estimate(double[] values, Statistic statistic)
    {
        _drawnAgain ??= DrawAgain();
        double[] replicates = [.. _drawnAgain.Select(rows => statistic(Array.ConvertAll(rows, row => values[row])))];
        return new(statistic(values), Quantile(replicates, (1 - Range) / 2), Quantile(replicates, (1 + Range) / 2));
    }

    /// <summary>The paths of each replicate: one per day of as many blocks of past days as there are days in all.</summary>
    private int[][] DrawAgain()
    {
        var random = new NumpyGenerator(Seed);
        var blocks = (PastDays + Days - 1) / Days;
        int[] starts = [.. Enumerable.Range(0, Replicates * blocks).Select(_ => random.Next(PastDays))];
        int[][] byDay = [.. Enumerable.Range(0, PastDays).Select(_ => Array.Empty<int>())];
        foreach (var paths in Enumerable.Range(0, Count).GroupBy(path => Origins[path]))
            byDay[paths.Key] = [.. paths];
        var replicates = new List<int[]>(Replicates);
        for (var replicate = 0; replicate < Replicates; replicate++)
        {
            var days = starts.AsSpan(replicate * blocks, blocks).ToArray().SelectMany(start => Enumerable.Range(start, Days).Select(day => byDay[day % PastDays]));
            int[] drawn = [.. days.Where(paths => paths.Length > 0).Select(paths => paths[random.Next(paths.Length)])];
            if (drawn.Length > 0) // always, unless there are only a few paths
                replicates.Add(drawn);
        }

        return [.. replicates];
    }

    private int RowOf(string symbol)
    {
        if (Refusals.TryGetValue(symbol, out var refusal))
            throw PathError.Invalid($"{symbol} has no paths: {refusal.Message}");
        return Array.IndexOf(Symbols, symbol) is >= 0 and var row
            ? row
            : throw PathError.Invalid($"there are no paths of {symbol}; there are paths of {PredictionError.Listed(Symbols)}");
    }
}
