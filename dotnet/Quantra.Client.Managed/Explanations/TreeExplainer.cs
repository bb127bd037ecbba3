namespace Quantra.Client.Managed;

/// <summary>Path-dependent TreeSHAP (Lundberg et al. 2020), by the integral of a polynomial for each leaf.</summary>
/// <remarks>
/// Without a column, a forecast follows both branches of its splits, weighted by their training windows. The Shapley value
/// of a leaf is the integral of a product over the columns on its path, which Gauss-Legendre nodes compute exactly.
/// </remarks>
internal sealed class TreeExplainer(TreesNetwork network, OutputMap output, Baseline baseline) : IExplainer
{
    private readonly double[]?[] _below = new double[]?[network.Forests * network.TreesOfForest];
    private readonly ForestFacts?[] _forests = new ForestFacts?[network.Forests];

    /// <inheritdoc/>
    public string Method => "tree-shap";

    /// <inheritdoc/>
    public string BaselineName => "train_windows";

    /// <inheritdoc/>
    public int Forecasts => 0;

    private int Levels => output.Levels.Length;

    /// <inheritdoc/>
    public Contributions[] Explain(NetworkInputs window, (int Horizon, int Quantile)[] points, double tolerance, int[] nodeCounts, CallLimit limit)
    {
        var (columns, units) = (new double[network.Summaries.Width], new double[network.Forests]);
        network.Summaries.Compute(window, 0, columns);
        network.Run(window, units);
        double[] values = [.. units];
        output.Calibrate(values, window);
        return Array.ConvertAll(points, point =>
        {
            limit.Check();
            var forest = (point.Horizon * Levels) + point.Quantile;
            if (!double.IsFinite(values[forest]))
                throw GradientExplainer.NotFinite();
            return Join(window, columns, point.Horizon, forest, units[forest], values[forest], tolerance);
        });
    }

    private Contributions Join(NetworkInputs window, double[] columns, int horizon, int forest, double units, double value, double tolerance)
    {
        var (expected, nodes) = _forests[forest] ??= Measure(forest);
        var (spread, sums) = (output.Spread[horizon], new double[columns.Length]);
        var (unit, usual) = (window.Scale[horizon] * spread, baseline.Scale[horizon] * spread);
        foreach (var path in EnumeratePaths(forest, columns))
            path.AddShapleyValues(GaussLegendre.Of(nodes), unit, sums);
        var (observed, known, statics, location, scale) = network.Summaries.SumGroups(sums);
        return new Contributions
        {
            Observed = observed,
            Known = known,
            Static = statics,
            Location = window.Location[horizon] - baseline.Location[horizon] + location,
            Scale = ((unit - usual) * expected) + scale,
            Conformal = value - (window.Location[horizon] + (unit * units)),
            Prediction = value,
            BaselinePrediction = baseline.Location[horizon] + (usual * expected),
            Nodes = nodes,
        }.AddGap(unit, tolerance);
    }

    private ForestFacts Measure(int forest)
    {
        var (expected, most) = (0.0, 1);
        foreach (var path in EnumeratePaths(forest, null))
        {
            expected += path.Value * path.Share;
            most = Math.Max(most, path.Steps.Count);
        }

        return new(expected, (most + 1) / 2);
    }

    private IEnumerable<LeafPath> EnumeratePaths(int forest, double[]? columns) => Enumerable.Range(forest * network.TreesOfForest, network.TreesOfForest)
        .SelectMany(tree => EnumeratePathsBelow(tree, network.Root(tree), new LeafPath(0, 1, []), columns));

    /// <summary>The paths to the leaves below a split that training windows reached; without columns, no split is followed.</summary>
    private IEnumerable<LeafPath> EnumeratePathsBelow(int tree, int split, LeafPath path, double[]? columns)
    {
        if (split < 0)
            return [path with { Value = network.Leaf(tree, ~split).Value }];
        var (column, left, right) = network.Split(tree, split);
        var goesLeft = columns is not null && network.GoesLeft(tree, split, columns[column]);
        return Below(left, goesLeft).Concat(Below(right, !goesLeft));

        IEnumerable<LeafPath> Below(int child, bool follows)
        {
            var share = CountBelow(tree, child) / CountBelow(tree, split);
            return share > 0 ? EnumeratePathsBelow(tree, child, path.Through(column, share, follows), columns) : [];
        }
    }

    /// <summary>Training windows below a split or in a ~leaf.</summary>
    private double CountBelow(int tree, int split)
    {
        if (split < 0)
            return network.Leaf(tree, ~split).Count;
        return (_below[tree] ??= network.CountBelow(tree))[split];
    }

    /// <summary>A forest over the training windows.</summary>
    /// <param name="Expected">Its mean.</param>
    /// <param name="Nodes">Nodes that integrate its longest path exactly.</param>
    private sealed record ForestFacts(double Expected, int Nodes);

    /// <summary>The path to a leaf; splits that compare the same column are one step.</summary>
    /// <param name="Value">The leaf's value.</param>
    /// <param name="Share">Share of the training windows that reached it.</param>
    /// <param name="Steps">Columns, the share of the windows that their splits send towards the leaf, and whether the row goes there too.</param>
    private sealed record LeafPath(double Value, double Share, List<(int Column, double Share, bool Follows)> Steps)
    {
        /// <summary>The path through another split.</summary>
        public LeafPath Through(int column, double share, bool follows)
        {
            List<(int Column, double Share, bool Follows)> steps = [.. Steps];
            var place = steps.FindIndex(step => step.Column == column);
            if (place < 0)
                steps.Add((column, share, follows));
            else
                steps[place] = (column, steps[place].Share * share, steps[place].Follows && follows);
            return new(Value, Share * share, steps);
        }

        /// <summary>Adds the leaf's part of each column's Shapley value times a factor.</summary>
        public void AddShapleyValues(GaussLegendre rule, double factor, double[] sums)
        {
            for (var node = 0; node < rule.Positions.Length; node++)
            {
                var position = rule.Positions[node];
                var product = rule.Weights[node] * Value * factor;
                foreach (var step in Steps)
                    product *= Factor(step);
                foreach (var step in Steps)
                    sums[step.Column] += ((step.Follows ? 1 : 0) - step.Share) * product / Factor(step);

                double Factor((int Column, double Share, bool Follows) step) => (step.Follows ? position : 0) + (step.Share * (1 - position));
            }
        }
    }
}
