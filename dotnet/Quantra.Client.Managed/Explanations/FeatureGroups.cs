namespace Quantra.Client.Managed;

/// <summary>The inputs that explanations by feature move together: each feature in all sessions, location, scale, conformal offsets, and the neighbours.</summary>
internal sealed class FeatureGroups
{
    private readonly int[] _observed;
    private readonly int[] _known;
    private readonly int[] _static;
    private readonly int _location;
    private readonly bool _hasNeighbours;

    public FeatureGroups(FittedFeatures features, bool hasNeighbours)
    {
        _hasNeighbours = hasNeighbours;
        var (known, statics) = (features.Names.Length, features.Names.Length + features.KnownDefinitions.Length);
        _observed = [.. Enumerable.Range(0, known)];
        _known = Array.ConvertAll(features.KnownGroups, feature => known + feature);
        _static = Array.ConvertAll(features.Statics.Groups, feature => statics + feature);
        _location = statics + features.Statics.Names.Length;
    }

    /// <summary>Number of groups.</summary>
    public int Count => Offsets + (_hasNeighbours ? 2 : 1);

    /// <summary>Index of the location.</summary>
    public int Location => _location;

    /// <summary>Index of the scale.</summary>
    public int Scale => _location + 1;

    /// <summary>Index of the conformal offsets, which are not inputs of a network. Only the neighbours come after them.</summary>
    public int Offsets => _location + 2;

    /// <summary>Copies a group of inputs, which are of one window, to a window of others.</summary>
    public void Copy(int group, NetworkInputs from, NetworkInputs to, int window)
    {
        Copy(from.Observed, to.Observed, _observed);
        Copy(from.Known, to.Known, _known);
        Copy(from.Static, to.Static, _static);
        Copy(from.Location, to.Location, [Location]);
        Copy(from.Scale, to.Scale, [Scale]);

        void Copy<T>(T[] source, T[] target, ReadOnlySpan<int> columns) =>
            CopyTo(group, source, target.AsSpan(window * source.Length, source.Length), source.Length / from.Rows, columns);
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
        Neighbours = _hasNeighbours ? groups[^1] : 0,
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

    /// <summary>Copies a group of one kind of inputs, the first of which are the explained stock's.</summary>
    private void CopyTo<T>(int group, T[] from, Span<T> to, int own, ReadOnlySpan<int> columns)
    {
        if (group > Offsets)
            from.AsSpan(own).CopyTo(to[own..]);
        for (var column = 0; column < columns.Length; column++)
        {
            if (columns[column] != group)
                continue;
            for (var cell = column; cell < own; cell += columns.Length)
                to[cell] = from[cell];
        }
    }
}
