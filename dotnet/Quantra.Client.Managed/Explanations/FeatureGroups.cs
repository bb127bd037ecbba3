namespace Quantra.Client.Managed;

/// <summary>The inputs that explanations by feature move together: each feature in all sessions, location, scale, and conformal offsets.</summary>
internal sealed class FeatureGroups
{
    private readonly int[] _observed;
    private readonly int[] _known;
    private readonly int[] _static;
    private readonly int _location;

    public FeatureGroups(FittedFeatures features)
    {
        var (known, statics) = (features.Names.Length, features.Names.Length + features.KnownDefinitions.Length);
        _observed = [.. Enumerable.Range(0, known)];
        _known = Array.ConvertAll(features.KnownGroups, feature => known + feature);
        _static = Array.ConvertAll(features.Statics.Groups, feature => statics + feature);
        _location = statics + features.Statics.Names.Length;
    }

    /// <summary>Number of groups.</summary>
    public int Count => Offsets + 1;

    /// <summary>Index of the location.</summary>
    public int Location => _location;

    /// <summary>Index of the scale.</summary>
    public int Scale => _location + 1;

    /// <summary>Index of the conformal offsets, the last group, which are not inputs of a network.</summary>
    public int Offsets => _location + 2;

    /// <summary>Copies a group of inputs, which are of one row, to a row of others.</summary>
    public void Copy(int group, NetworkInputs from, NetworkInputs to, int row)
    {
        Copy(group, from.Observed, to.Observed, row, _observed);
        Copy(group, from.Known, to.Known, row, _known);
        Copy(group, from.Static, to.Static, row, _static);
        Copy(group, from.Location, to.Location, row, [Location]);
        Copy(group, from.Scale, to.Scale, row, [Scale]);
    }

    /// <summary>The group of each column that trees read.</summary>
    public int[] ReadBy(WindowSummaries summaries) => summaries.Repeat(_observed, _known, _static, Location, Scale);

    /// <summary>Contributions from those of the groups; a feature with several columns has them at the first one.</summary>
    /// <param name="groups">[G]</param>
    /// <param name="prediction">The forecast.</param>
    /// <param name="baselinePrediction">The forecast at the baseline.</param>
    /// <param name="nodes">The number to report as nodes.</param>
    public Contributions Join(double[] groups, double prediction, double baselinePrediction, int nodes) => new()
    {
        Observed = Place(_observed, groups),
        Known = Place(_known, groups),
        Static = Place(_static, groups),
        Location = groups[Location],
        Scale = groups[Scale],
        Conformal = groups[Offsets],
        Prediction = prediction,
        BaselinePrediction = baselinePrediction,
        Nodes = nodes,
    };

    private static double[] Place(int[] columns, double[] groups)
    {
        var placed = new double[columns.Length];
        for (var column = 0; column < columns.Length; column++)
            placed[column] = Array.IndexOf(columns, columns[column]) == column ? groups[columns[column]] : 0;
        return placed;
    }

    private static void Copy<T>(int group, T[] from, T[] to, int row, ReadOnlySpan<int> columns)
    {
        var own = to.AsSpan(row * from.Length, from.Length);
        for (var column = 0; column < columns.Length; column++)
        {
            if (columns[column] != group)
                continue;
            for (var cell = column; cell < own.Length; cell += columns.Length)
                own[cell] = from[cell];
        }
    }
}
