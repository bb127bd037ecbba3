namespace Quantra.Client.Managed;

/// <summary>Integrated gradients (Sundararajan, Taly and Yan 2017, equation 1).</summary>
/// <remarks>
/// The contribution of a number is its distance from the baseline times the mean gradient of the forecast along the
/// straight path. The number of nodes doubles until the remaining gap is small and the gradients are smooth.
/// </remarks>
internal sealed class GradientExplainer(IDifferentiableNetwork network, OutputMap output, Baseline baseline) : IExplainer
{
    /// <summary>Nodes of one forward pass; more would not stay in the processor's cache.</summary>
    private const int NodesAtOnce = 4;

    /// <inheritdoc/>
    public string Method => "integrated-gradients";

    /// <inheritdoc/>
    public string BaselineName => baseline.Name;

    /// <inheritdoc/>
    public int Forecasts => 0;

    private int Horizons => output.Spread.Length;

    private int Levels => output.Levels.Length;

    /// <inheritdoc/>
    public Contributions[] Explain(NetworkInputs window, (int Horizon, int Quantile)[] points, double tolerance, int[] nodeCounts, CallLimit limit)
    {
        var path = new StraightPath(window, baseline, output);
        var ends = path.At([0.0, 1.0]);
        var units = new double[ends.Rows * Horizons * Levels];
        network.Run(ends, units);
        var (found, open) = (new Contributions[points.Length], Enumerable.Range(0, points.Length).ToList());
        foreach (var count in nodeCounts)
        {
            var gradients = Integrate(path, [.. open.Select(p => points[p])], count, limit);
            for (var place = open.Count - 1; place >= 0; place--)
            {
                var point = points[open[place]];
                var (from, to) = (output.ValueAt(units, ends, 0, point, 0), output.ValueAt(units, ends, path.Members, point, 1));
                if (!double.IsFinite(from) || !double.IsFinite(to))
                    throw NotFinite();
                var least = Math.Max(Math.Abs(to - from), Contributions.GapFloor * output.Spread[point.Horizon] * window.Scale[point.Horizon]);
                var (mean, rough) = gradients[place];
                double sum = 0, size = 0, roughSize = 0;
                for (var cell = 0; cell < mean.Length; cell++)
                {
                    mean[cell] *= path.Distance[cell];
                    sum += mean[cell];
                    size += Math.Abs(mean[cell]);
                    roughSize += Math.Abs(rough[cell] * path.Distance[cell]);
                }

                var gap = Math.Abs(sum - (to - from)) / least;
                found[open[place]] = Split(window, mean) with
                {
                    Prediction = to,
                    BaselinePrediction = from,
                    RelativeGap = gap,
                    Converged = gap <= tolerance,
                    Nodes = count,
                };
                // with few nodes, errors of cells can cancel in their sum, so the cells must be smooth too
                if (gap <= tolerance && roughSize <= GaussLegendre.LimitRoughness(count, tolerance) * Math.Max(size, least))
                    open.RemoveAt(place);
            }

            if (open.Count == 0)
                break;
        }

        return found;
    }

    /// <summary>The error for a forecast that cannot be explained.</summary>
    public static QuantraException NotFinite() => PredictionError.Of(
        QuantraStatus.InvalidArgument, QuantraReason.InvalidInput, "the forecast of a window is not finite, so there is nothing to explain").ToException();

    /// <summary>The mean gradient of each point along the path, and the coefficient of the highest degree that the nodes resolve.</summary>
    private (double[] Mean, double[] Rough)[] Integrate(StraightPath path, (int Horizon, int Quantile)[] points, int count, CallLimit limit)
    {
        var rule = GaussLegendre.Of(count);
        var sums = Array.ConvertAll(points, _ => (Mean: new double[path.Distance.Length], Rough: new double[path.Distance.Length]));
        for (var first = 0; first < count; first += NodesAtOnce)
        {
            limit.Check();
            var positions = rule.Positions.AsSpan(first, Math.Min(NodesAtOnce, count - first));
            var inputs = path.At(positions);
            using var trace = network.Trace(inputs);
            for (var p = 0; p < points.Length; p++)
                AddGradients(trace, inputs, points[p], path, rule, first, sums[p]);
        }

        return sums;
    }

    private void AddGradients(
        INetworkTrace trace, NetworkInputs inputs, (int Horizon, int Quantile) point, StraightPath path, GaussLegendre rule, int first, (double[] Mean, double[] Rough) sums)
    {
        var (weights, levels) = (new double[trace.Units.Length], path.Members * Horizons);
        for (var row = 0; row < inputs.Panels; row++)
        {
            var (units, source) = CalibrateAt(trace.Units, row * path.Members, point, rule.Positions[first + row]);
            var level = (row * levels) + point.Horizon;
            var width = inputs.Scale[level] * output.Spread[point.Horizon];
            weights[(level * Levels) + source] = width;
            Add(row, path.FirstLocation + point.Horizon, 1);
            Add(row, path.FirstLocation + levels + point.Horizon, output.Spread[point.Horizon] * units);
            Add(row, path.FirstLocation + (2 * levels) + (point.Horizon * Levels) + source, width);
        }

        var gradients = trace.Gradients(weights);
        for (var row = 0; row < inputs.Panels; row++)
        {
            var cell = 0;
            foreach (var group in new[] { gradients.Observed, gradients.Known, gradients.Static })
            {
                var own = group.Length / inputs.Panels;
                for (var k = 0; k < own; k++)
                    Add(row, cell++, group[(row * own) + k]);
            }
        }

        void Add(int row, int cell, double gradient)
        {
            var weighted = rule.Weights[first + row] * gradient;
            sums.Mean[cell] += weighted;
            sums.Rough[cell] += rule.Highest[first + row] * weighted;
        }
    }

    private (double Units, int Source) CalibrateAt(double[] units, int row, (int Horizon, int Quantile) point, double position) =>
        output.Calibrate(units.AsSpan(((row * Horizons) + point.Horizon) * Levels, Levels), point.Horizon, point.Quantile, position);

    private static Contributions Split(NetworkInputs window, double[] cells)
    {
        var (end, neighbours) = (0, 0.0);
        double[] observed = Next(window.Observed.Length), known = Next(window.Known.Length), statics = Next(window.Static.Length);
        double location = Next(window.Location.Length).Sum(), scale = Next(window.Scale.Length).Sum();
        return new Contributions
        {
            Observed = observed,
            Known = known,
            Static = statics,
            Location = location,
            Scale = scale,
            Conformal = cells[end..].Sum(),
            Neighbours = neighbours,
            Prediction = 0,
            BaselinePrediction = 0,
            Nodes = 0,
        };

        // the cells of the explained stock, which come first
        double[] Next(int count)
        {
            var own = end + (count / window.Members);
            double[] next = cells[end..own];
            neighbours += cells[own..(end += count)].Sum();
            return next;
        }
    }
}
