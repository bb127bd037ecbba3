namespace Quantra.Client.Managed;

/// <summary>Occlusion: how a forecast changes when a feature is at the baseline in all sessions (Zeiler and Fergus 2014).</summary>
/// <remarks>Contributions do not add up. Location, scale and conformal offsets are features too.</remarks>
internal sealed class OcclusionExplainer(INetwork network, OutputMap output, Baseline baseline, FeatureGroups groups) : IExplainer
{
    /// <summary>Name of the method.</summary>
    public const string Name = "occlusion";

    /// <summary>Warning of every explanation.</summary>
    public const string NotAdditive =
        "occlusion is not additive: each contribution is the forecast minus the forecast without this input, and their sum "
        + "is not the difference from the baseline";

    /// <inheritdoc/>
    public string Method => Name;

    /// <inheritdoc/>
    public string BaselineName => baseline.Name;

    /// <summary>With and without all features, and without each.</summary>
    public int Forecasts => 2 + groups.Count;

    /// <inheritdoc/>
    public Contributions[] Explain(NetworkInputs window, (int Horizon, int Quantile)[] points, double tolerance, int[] nodeCounts, CallLimit limit)
    {
        limit.Check();
        var inputs = Hide(new StraightPath(window, baseline, output));
        var units = new double[inputs.Rows * output.Spread.Length * output.Levels.Length];
        network.Run(inputs, units);
        return Array.ConvertAll(points, point =>
        {
            var value = ComputeValue(0, 1);
            if (!double.IsFinite(value))
                throw GradientExplainer.NotFinite();
            var effects = new double[groups.Count];
            for (var group = 0; group < groups.Offsets; group++)
                effects[group] = value - ComputeValue(2 + group, 1);
            effects[groups.Offsets] = value - ComputeValue(0, 0);
            for (var group = groups.Offsets + 1; group < groups.Count; group++)
                effects[group] = value - ComputeValue(1 + group, 1);
            return groups.Join(effects, value, ComputeValue(1, 0), groups.Offsets + 1).AddGap(output.Spread[point.Horizon] * window.Scale[point.Horizon], tolerance);

            double ComputeValue(int row, double share) => output.ValueAt(units, inputs, row * inputs.Members, point, share);
        });
    }

    /// <summary>The window, the baseline, and the window without each group but the offsets: one row or panel each.</summary>
    private NetworkInputs Hide(StraightPath path)
    {
        var positions = new double[1 + groups.Count];
        Array.Fill(positions, 1);
        positions[1] = 0;
        var (inputs, start) = (path.At(positions), path.At([0.0]));
        for (var group = 0; group < groups.Count; group++)
        {
            if (group != groups.Offsets)
                groups.Copy(group, start, inputs, group < groups.Offsets ? 2 + group : 1 + group);
        }

        return inputs;
    }
}
