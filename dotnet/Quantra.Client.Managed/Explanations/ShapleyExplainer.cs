namespace Quantra.Client.Managed;

/// <summary>Shapley values of features (Shapley 1953; Strumbelj and Kononenko 2014).</summary>
/// <remarks>
/// Features move one after the other from the baseline to the window, in all sessions at once. The contribution of a feature is the change of
/// the forecast at its move, averaged over several orders. The changes of each order add up, so the averages do, too. Location, scale and
/// conformal offsets are features too. For trees, the average over all orders is computed instead.
/// </remarks>
internal sealed class ShapleyExplainer(INetwork network, OutputMap output, Baseline baseline, FeatureGroups groups) : IExplainer
{
    /// <summary>Name of the method.</summary>
    public const string Name = "shapley";

    /// <summary>Orders of the features; every second one is the reverse of the one before it.</summary>
    private const int Orders = 16;

    private readonly InterventionalTreeShap? _trees = network is TreesNetwork trees ? new(trees, output, groups) : null;
    private int[][]? _orders;

    /// <inheritdoc/>
    public string Method => Name;

    /// <inheritdoc/>
    public string BaselineName => baseline.Name;

    /// <summary>Both ends, and all orders after each move but the last; 0 for trees.</summary>
    public int Forecasts => _trees is null ? 2 + (Orders * (groups.Count - 1)) : 0;

    /// <inheritdoc/>
    public Contributions[] Explain(NetworkInputs window, (int Horizon, int Quantile)[] points, double tolerance, int[] nodeCounts, CallLimit limit)
    {
        limit.Check();
        var path = new StraightPath(window, baseline, output);
        var first = path.At([0.0]);
        var (start, end) = (Forecast(first, points, [0.0]), Forecast(window, points, [1.0]));
        if (!Array.TrueForAll(end, double.IsFinite))
            throw GradientExplainer.NotFinite();
        var changes = _trees?.Compute(first, window, points, start, end, limit) ?? ComputeAverageChanges(path, points, start, end, limit);
        return
        [
            .. points.Select((point, p) => groups.Join(changes[p], end[p], start[p], _trees is null ? Orders : 1)
                .AddGap(output.Spread[point.Horizon] * window.Scale[point.Horizon], tolerance)),
        ];
    }

    /// <summary>Orders of the groups, which a generator draws whose seed is their number: the same as in Python.</summary>
    private static int[][] DrawOrders(int count)
    {
        var random = new NumpyGenerator(count);
        return [.. Enumerable.Range(0, Orders / 2).Select(_ => random.Permutation(count)).SelectMany(order => new[] { order, [.. Enumerable.Reverse(order)] })];
    }

    /// <summary>For each point, the mean change [G] of the forecast when a group moves from the baseline to the window.</summary>
    private double[][] ComputeAverageChanges(StraightPath path, (int Horizon, int Quantile)[] points, double[] start, double[] end, CallLimit limit)
    {
        var orders = _orders ??= DrawOrders(groups.Count);
        double[][] changes = Array.ConvertAll(points, _ => new double[groups.Count]);
        var (states, window, shares) = (path.At(new double[Orders]), path.At([1.0]), new double[Orders]);
        double[] before = Repeat(start);
        for (var move = 0; move < groups.Count; move++)
        {
            limit.Check();
            for (var state = 0; state < Orders; state++)
            {
                groups.Copy(orders[state][move], window, states, state);
                shares[state] = orders[state][move] == groups.Offsets ? 1 : shares[state];
            }

            double[] after = move < groups.Count - 1 ? Forecast(states, points, shares) : Repeat(end);
            for (var cell = 0; cell < after.Length; cell++)
                changes[cell % points.Length][orders[cell / points.Length][move]] += (after[cell] - before[cell]) / Orders;
            before = after;
        }

        return changes;

        static double[] Repeat(double[] values) => [.. Enumerable.Repeat(values, Orders).SelectMany(own => own)];
    }

    /// <summary>[N, P] forecasts of the points for N rows or panels with these shares of the offsets.</summary>
    private double[] Forecast(NetworkInputs inputs, (int Horizon, int Quantile)[] points, double[] shares)
    {
        var units = new double[inputs.Rows * output.Spread.Length * output.Levels.Length];
        network.Run(inputs, units);
        return [.. shares.SelectMany((share, row) => points.Select(point => output.ValueAt(units, inputs, row * inputs.Members, point, share)))];
    }
}
