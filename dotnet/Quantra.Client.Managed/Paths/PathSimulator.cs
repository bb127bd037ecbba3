using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Draws joint price paths of several symbols, from their forecast and their past.</summary>
/// <remarks>
/// The method is a conditional Schaake shuffle (Clark et al., 2004). Past paths of all symbols over the same days, scaled to today's
/// volatility, give the shape of a path and the dependence between symbols. The forecast gives the distribution at each of its horizons.
/// </remarks>
internal static class PathSimulator
{
    private const int MostPaths = 100_000;

    /// <summary>Largest number of paths x symbols x days.</summary>
    private const int MostCells = 2_000_000;

    /// <summary>Simulates paths.</summary>
    /// <param name="forecast">Of log returns without a lag.</param>
    /// <param name="bars">The past of the symbols up to the forecast's last bar.</param>
    /// <param name="count">Number of paths.</param>
    /// <param name="seed">Seed of the draw of past days.</param>
    /// <exception cref="QuantraException">
    /// INVALID_INPUT: the forecast is not of log returns, its bars end on another day, or there are too many paths. TOO_FEW_BARS: no symbol
    /// has enough past days.
    /// </exception>
    public static PricePaths Simulate(Forecast forecast, RawBars bars, int count, long seed)
    {
        int[] wanted = [.. Enumerable.Range(0, bars.Symbols.Count).Where(row => !forecast.Refusals.ContainsKey(bars.Symbols[row]))];
        var panel = bars.Rows(wanted);
        if (forecast.Refusals.Count > 0) // perhaps because of bars on wrong sessions
            panel = panel.OnSessions([.. panel.Sessions.Where((_, session) => Enumerable.Range(0, wanted.Length).Any(row => panel.IsPresent(row, session)))]);
        Check(forecast, panel, count);
        var days = forecast.Horizons[^1];
        var past = PastPaths.Of(panel, days);
        var (rows, refusals) = past.ChooseSymbols(panel.Symbols);
        var starts = past.FindCommonStarts(rows);
        var origins = DrawOrigins(seed, starts.Length, count);
        var returns = DrawPast(past, rows, starts, origins, days);
        var shapes = SortPast(past, rows, starts, forecast.Horizons);
        for (var k = 0; k < rows.Length; k++)
            ImposeMarginals(returns, k, rows.Length, forecast, wanted[rows[k]], shapes);
        foreach (var (symbol, error) in forecast.Refusals)
            refusals.TryAdd(symbol, error);
        return new PricePaths
        {
            Symbols = [.. rows.Select(row => panel.Symbols[row])],
            Days = days,
            Count = count,
            Returns = returns,
            AnchorPrice = [.. rows.Select(row => forecast.AnchorPrice!.Value.Span[wanted[row]])],
            Seed = seed,
            Origins = origins,
            PastDays = starts.Length,
            Refusals = refusals,
        };
    }

    /// <summary>The past day of each path; every day is drawn once before one is drawn again.</summary>
    public static int[] DrawOrigins(long seed, int pastDays, int count)
    {
        var (random, origins) = (new NumpyGenerator(seed), new int[count]);
        for (var first = 0; first < count; first += pastDays)
            random.Permutation(pastDays).AsSpan(0, Math.Min(pastDays, count - first)).CopyTo(origins.AsSpan(first));
        return origins;
    }

    private static void Check(Forecast forecast, RawBars bars, int count)
    {
        if (forecast.Returns is null || forecast.Lag > 0 || forecast.AnchorPrice is null)
        {
            throw PathError.Invalid(FormattableString.Invariant(
                $"{forecast.Model}@{forecast.Version} forecasts {forecast.TargetKind} with a lag of {forecast.Lag}; paths need a model of log returns without a lag, and bars"));
        }

        var (last, asOf) = (Day.Show(bars.Sessions[^1]), Day.Show(forecast.AsOf is { } day ? Day.Of(day) : 0));
        if (last != asOf)
            throw PathError.Invalid($"the bars end on {last}, but those of the forecast on {asOf}; give the bars that were forecast, with their past");
        if (count is < 1 or > MostPaths)
            throw PathError.Invalid(string.Create(CultureInfo.InvariantCulture, $"paths is {count}, but must be 1 to {MostPaths:N0}"));
        var cells = (long)count * forecast.Symbols.Count * forecast.Horizons[^1];
        if (cells > MostCells)
        {
            throw PathError.Invalid(string.Create(
                CultureInfo.InvariantCulture,
                $"{count:N0} paths of {MessageFormat.Count(forecast.Symbols.Count, "symbol")} have {cells:N0} values, at most {MostCells:N0}; simulate fewer paths or symbols"));
        }
    }

    /// <summary>Past paths [N, S, D] in units of today's volatility.</summary>
    private static double[] DrawPast(PastPaths past, int[] rows, int[] starts, int[] origins, int days)
    {
        var drawn = new double[origins.Length * rows.Length * days];
        for (var path = 0; path < origins.Length; path++)
        {
            for (var k = 0; k < rows.Length; k++)
            {
                var scaled = past.Scaled(rows[k], starts[origins[path]]);
                var first = ((path * rows.Length) + k) * days;
                for (var day = 0; day < days; day++)
                    drawn[first + day] = past.Volatility[rows[k]] * scaled[day];
            }
        }

        return drawn;
    }

    /// <summary>For each horizon, the scaled past returns of all symbols, sorted: the shape of a distribution.</summary>
    private static double[][] SortPast(PastPaths past, int[] rows, int[] starts, IReadOnlyList<int> horizons)
    {
        var sorted = new double[horizons.Count][];
        for (var h = 0; h < sorted.Length; h++)
        {
            sorted[h] = new double[rows.Length * starts.Length];
            for (var cell = 0; cell < sorted[h].Length; cell++)
                sorted[h][cell] = past.Scaled(rows[cell / starts.Length], starts[cell % starts.Length])[horizons[h] - 1];
            Array.Sort(sorted[h]);
        }

        return sorted;
    }

    /// <summary>Gives the paths of one symbol the distribution of the forecast at each horizon, and keeps their ranks.</summary>
    /// <remarks>Corrections at the horizons are interpolated linearly for the days between.</remarks>
    private static void ImposeMarginals(double[] returns, int symbol, int symbols, Forecast forecast, int row, double[][] shapes)
    {
        var (horizons, levels) = (forecast.Horizons, forecast.Quantiles);
        var (days, count) = (horizons[^1], returns.Length / symbols / horizons[^1]);
        var corrections = new double[(horizons.Count + 1) * count];
        for (var h = 0; h < horizons.Count; h++)
        {
            double[] values = [.. Enumerable.Range(0, count).Select(path => returns[(((path * symbols) + symbol) * days) + horizons[h] - 1])];
            int[] order = [.. Enumerable.Range(0, count).OrderBy(path => values[path])];
            double[] known = [.. levels.Select(level => PathStatistics.Quantile(shapes[h], level))];
            var wanted = forecast.Returns!.Value.Span.Slice(((row * horizons.Count) + h) * levels.Count, levels.Count);
            for (var rank = 0; rank < count; rank++)
            {
                var sample = PathStatistics.Quantile(shapes[h], (rank + 0.5) / count);
                corrections[((h + 1) * count) + order[rank]] = Stretch(sample, known, wanted) - values[order[rank]];
            }
        }

        var right = 0;
        for (var day = 1; day <= days; day++)
        {
            if (day >= horizons[right] && right < horizons.Count - 1)
                right++;
            var left = right > 0 ? horizons[right - 1] : 0;
            var share = (double)(day - left) / (horizons[right] - left);
            for (var path = 0; path < count; path++)
            {
                ref var cell = ref returns[(((path * symbols) + symbol) * days) + day - 1];
                cell = cell + (corrections[(right * count) + path] * (1 - share)) + (corrections[((right + 1) * count) + path] * share);
            }
        }
    }

    /// <summary>Moves one number so that quantiles <paramref name="known"/> become <paramref name="values"/>; beyond the outer ones, it is stretched by their distance.</summary>
    private static double Stretch(double sample, double[] known, ReadOnlySpan<double> values)
    {
        if (sample >= known[0] && sample <= known[^1])
            return PathStatistics.Interpolate(sample, known, values);
        var outer = known[^1] > known[0] ? (values[^1] - values[0]) / (known[^1] - known[0]) : 1;
        return sample < known[0] ? values[0] + (outer * (sample - known[0])) : values[^1] + (outer * (sample - known[^1]));
    }
}
