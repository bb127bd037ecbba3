namespace Quantra.Client.Managed;

/// <summary>Exact Shapley values of features for trees: interventional TreeSHAP (Lundberg et al. 2020) with one baseline.</summary>
/// <remarks>
/// Some features are at the window, the others at the baseline. On the path to a leaf, a features agree with all their splits only at the
/// window, and b others only at the baseline. A leaf of value v gives each of the former v (a-1)! b! / (a+b)!, and each of the latter
/// -v a! (b-1)! / (a+b)!. The scale multiplies all leaves. What is added where quantiles would cross counts as part of the conformal offset.
/// </remarks>
internal sealed class InterventionalTreeShap(TreesNetwork network, OutputMap output, FeatureGroups groups)
{
    private readonly int[] _groups = groups.ReadBy(network.Summaries);

    private enum Side
    {
        Either,
        Window,
        Baseline,
    }

    /// <summary>The Shapley values [G] at each point.</summary>
    /// <param name="start">The baseline.</param>
    /// <param name="window">The window.</param>
    /// <param name="points">Indices of horizon and quantile.</param>
    /// <param name="from">[P] the forecasts at the baseline.</param>
    /// <param name="to">[P] the forecasts at the window.</param>
    /// <param name="limit">Checked before each point.</param>
    public double[][] Compute(NetworkInputs start, NetworkInputs window, (int Horizon, int Quantile)[] points, double[] from, double[] to, CallLimit limit)
    {
        var (usualUnits, units) = (new double[network.Forests], new double[network.Forests]);
        network.Run(start, usualUnits);
        network.Run(window, units);
        var (usualColumns, columns) = (new double[network.Summaries.Width], new double[network.Summaries.Width]);
        network.Summaries.Compute(start, 0, usualColumns);
        network.Summaries.Compute(window, 0, columns);
        return [.. points.Select((point, p) =>
        {
            limit.Check();
            var (h, q) = point;
            var (forest, offset) = ((h * output.Levels.Length) + q, output.Offsets[h][q]);
            var (usual, unit) = (start.Scale[h] * output.Spread[h], window.Scale[h] * output.Spread[h]);
            var values = new double[groups.Count];
            var descent = new Descent(network, groups.Scale, _groups, usualColumns, columns, usual, unit - usual, values);
            for (var tree = forest * network.TreesOfForest; tree < (forest + 1) * network.TreesOfForest; tree++)
                descent.Below(tree, network.Root(tree), 0, 0);
            var crossing = to[p] - (window.Location[h] + (unit * (units[forest] + offset))) - (from[p] - (start.Location[h] + (usual * usualUnits[forest])));
            values[groups.Location] += window.Location[h] - start.Location[h];
            values[groups.Scale] += offset * (unit - usual) / 2;
            values[groups.Offsets] = (offset * (unit + usual) / 2) + crossing;
            return values;
        })];
    }

    /// <summary>One of a number of features, in all orders of these and others: 1 / (own (own + others)! / (own! others!)).</summary>
    private static double Share(int own, int others)
    {
        var orders = 1.0;
        for (var k = 1; k <= own; k++)
            orders = orders * (others + k) / k;
        return 1 / (Math.Max(own, 1) * orders);
    }

    /// <summary>A descent to all leaves that some features at the window, and the others at the baseline, reach.</summary>
    private sealed class Descent(
        TreesNetwork network, int scale, int[] groups, double[] baseline, double[] window, double usual, double change, double[] values)
    {
        private readonly Side[] _sides = new Side[values.Length];
        private readonly Stack<int> _path = [];

        /// <summary>Adds the leaves below a split or in a ~leaf, which a features need at the window and b at the baseline.</summary>
        public void Below(int tree, int split, int a, int b)
        {
            if (split < 0)
            {
                AddLeaf(network.Leaf(tree, ~split).Value, a, b);
                return;
            }

            var (column, left, right) = network.Split(tree, split);
            var group = groups[column];
            var atWindow = network.GoesLeft(tree, split, window[column]) ? left : right;
            var atBaseline = network.GoesLeft(tree, split, baseline[column]) ? left : right;
            if (_sides[group] != Side.Either || atWindow == atBaseline)
            {
                Below(tree, _sides[group] == Side.Baseline ? atBaseline : atWindow, a, b);
                return;
            }

            _path.Push(group);
            _sides[group] = Side.Window;
            Below(tree, atWindow, a + 1, b);
            _sides[group] = Side.Baseline;
            Below(tree, atBaseline, a, b + 1);
            _sides[group] = Side.Either;
            _path.Pop();
        }

        /// <summary>The scale's baseline multiplies every leaf. Its change multiplies a leaf that also needs the scale's window.</summary>
        private void AddLeaf(double value, int a, int b)
        {
            var own = _sides[scale] == Side.Baseline ? 0 : change;
            var withScale = _sides[scale] == Side.Window ? a : a + 1;
            var gainOfChange = value * own * Share(withScale, b);
            var gain = (value * usual * Share(a, b)) + gainOfChange;
            var loss = value * ((usual * Share(b, a)) + (own * Share(b, withScale)));
            foreach (var group in _path)
                values[group] += _sides[group] == Side.Window ? gain : -loss;
            if (_sides[scale] == Side.Either)
                values[scale] += gainOfChange;
        }
    }
}
