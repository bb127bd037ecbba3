namespace Quantra.Client.Managed;

/// <summary>Occlusion: how a forecast changes when a feature is at the baseline in all sessions (Zeiler and Fergus 2014).</summary>
/// <remarks>Contributions do not add up. Location, scale and conformal offsets are features too.</remarks>
internal sealed class OcclusionExplainer(INetwork network, OutputMap output, Baseline baseline, FittedFeatures features) : IExplainer
{
    /// <summary>Name of the method.</summary>
    public const string Name = "occlusion";

    /// <summary>Warning of every explanation.</summary>
    public const string NotAdditive =
        "occlusion is not additive: each contribution is the forecast minus the forecast without this input, and their sum "
        + "is not the difference from the baseline";

    /// <summary>Location, scale and conformal offsets.</summary>
    private const int WindowRows = 3;

    /// <inheritdoc/>
    public string Method => Name;

    /// <inheritdoc/>
    public string BaselineName => baseline.Name;

    /// <summary>Forecasts of one window: with and without all features, and without each.</summary>
    public int Forecasts => 2 + Groups;

    private int Groups => features.Names.Length + features.KnownDefinitions.Length + features.Statics.Names.Length + WindowRows;

    /// <inheritdoc/>
    public Contributions[] Explain(NetworkInputs window, (int Horizon, int Quantile)[] points, double tolerance, int[] nodeCounts, CallLimit limit)
    {
        limit.Check();
        var (path, width, levels) = (new StraightPath(window, baseline, output), output.Spread.Length * output.Levels.Length, output.Levels.Length);
        var inputs = Hide(path);
        var units = new double[inputs.Rows * width];
        network.Run(inputs, units);
        return Array.ConvertAll(points, point =>
        {
            var (row, value) = (1, ValueOf(0, 1));
            if (!double.IsFinite(value))
                throw GradientExplainer.NotFinite();
            var (observed, known, statics) = (new double[features.Names.Length], new double[features.KnownColumns.Length], new double[window.Static.Length]);
            var whole = new Contributions
            {
                Observed = observed,
                Known = known,
                Static = statics,
                Prediction = value,
                BaselinePrediction = ValueOf(row++, 0),
                Location = Effect(),
                Scale = Effect(),
                Conformal = value - ValueOf(0, 0),
                Nodes = Groups,
            };
            for (var k = 0; k < observed.Length; k++)
                observed[k] = Effect();
            for (var k = 0; k < features.KnownDefinitions.Length; k++)
                known[Array.IndexOf(features.KnownGroups, k)] = Effect();
            for (var k = 0; k < features.Statics.Names.Length; k++)
                statics[Array.IndexOf(features.Statics.Groups, k)] = Effect();
            return whole.WithGap(output.Spread[point.Horizon] * window.Scale[point.Horizon], tolerance);

            double Effect() => value - ValueOf(row++, 1);
            double ValueOf(int place, double share)
            {
                var level = (place * output.Spread.Length) + point.Horizon;
                var calibrated = output.Calibrate(units.AsSpan(level * levels, levels), point.Horizon, point.Quantile, share).Units;
                return inputs.Location[level] + (inputs.Scale[level] * output.Spread[point.Horizon] * calibrated);
            }
        });
    }

    /// <summary>The window, the baseline, and the window without location, without scale, and without each feature: one row each.</summary>
    private NetworkInputs Hide(StraightPath path)
    {
        var positions = new double[Forecasts - 1]; // the offsets are not inputs of the network
        Array.Fill(positions, 1);
        positions[1] = 0;
        var (inputs, start, row) = (path.At(positions), path.At([0.0]), 2);
        start.Location.CopyTo(inputs.Location, row++ * start.Location.Length);
        start.Scale.CopyTo(inputs.Scale, row++ * start.Scale.Length);
        Replace(inputs.Observed, start.Observed, [.. Enumerable.Range(0, features.Names.Length)]);
        Replace(inputs.Known, start.Known, features.KnownGroups);
        Replace(inputs.Static, start.Static, features.Statics.Groups);
        return inputs;

        // for each group of columns, one row without it
        void Replace(float[] values, float[] reference, int[] groups)
        {
            for (var group = 0; group <= groups.DefaultIfEmpty(-1).Max(); group++)
            {
                var own = values.AsSpan(row++ * reference.Length, reference.Length);
                for (var cell = 0; cell < own.Length; cell++)
                    own[cell] = groups[cell % groups.Length] == group ? reference[cell] : own[cell];
            }
        }
    }
}
