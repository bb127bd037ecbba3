namespace Quantra.Client.Managed;

/// <summary>Averages the explanations of an ensemble's members.</summary>
internal static class EnsembleAttribution
{
    private static readonly (RowKind Kind, string Name) Offsets = (RowKind.Conformal, "conformal");

    /// <summary>Averages contributions row by row; a row or session that a member lacks counts as 0.</summary>
    /// <remarks>
    /// The row of conformal offsets includes those of the ensemble, and the shift of weighted quantiles that were sorted. The gap is the largest
    /// of the members' gaps and the ensemble's own. Weights of the networks' layers are kept for each member.
    /// </remarks>
    public static Attribution Combine(string[] names, Attribution[] members, Point point)
    {
        (RowKind Kind, string Name)[] rows = [.. members.SelectMany(KeysOf).Distinct().OrderBy(row => row.Kind)];
        var (symbols, weights, longest) = (point.Values.Length, point.Weights, members.MaxBy(one => one.Sessions.Count)!);
        var perRow = Mean(one => one.PerRow, one => KeysOf(one).Select(row => Array.IndexOf(rows, row)), rows.Length)!.Value.ToArray();
        var (predictions, baselines) = (ComputeAverage(one => one.Prediction), ComputeAverage(one => one.BaselinePrediction));
        var gaps = new double[symbols];
        for (var k = 0; k < symbols; k++)
        {
            perRow[(k * rows.Length) + Array.IndexOf(rows, Offsets)] += point.Values[k] - predictions[k];
            var difference = point.Values[k] - baselines[k];
            var sum = perRow.AsSpan(k * rows.Length, rows.Length).ToArray().Sum();
            gaps[k] = Math.Abs(sum - difference) / Math.Max(Math.Abs(difference), Contributions.GapFloor * point.Unit[k]);
            gaps[k] = members.Aggregate(gaps[k], (gap, one) => Math.Max(gap, one.RelativeGap.Span[k]));
        }

        string[] observed = [.. rows.Where(row => row.Kind == RowKind.Observed).Select(row => row.Name)];
        return longest with
        {
            Baseline = string.Join(", ", members.Select(one => one.Baseline).Distinct(StringComparer.Ordinal)),
            RowNames = Array.ConvertAll(rows, row => row.Name),
            RowKinds = Array.ConvertAll(rows, row => row.Kind),
            PerRow = perRow,
            PerTime = Mean(one => one.PerTime, _ => [0], 1),
            Cells = Mean(one => one.Cells, one => KeysOf(one).Where(row => row.Kind == RowKind.Observed).Select(row => Array.IndexOf(observed, row.Name)), observed.Length),
            Prediction = point.Values,
            BaselinePrediction = baselines,
            RelativeGap = gaps,
            Converged = Array.ConvertAll(gaps, gap => gap <= point.Tolerance),
            Nodes = [.. point.Values.Select((value, k) => double.IsFinite(value) ? members.Max(one => one.Nodes[k]) : 0)],
            Internals =
            [
                .. members.SelectMany((member, m) => member.Internals.Select(one =>
                    one with { Name = $"{names[m]}: {one.Name}", Values = RemoveUnusable(one.Values.ToArray()) })),
            ],
        };

        double[] ComputeAverage(Func<Attribution, ReadOnlyMemory<double>> numbers) =>
            RemoveUnusable(EnsembleManifest.Mean(Array.ConvertAll(members, one => numbers(one).ToArray()), weights));

        // The mean of [S, T, columns], with the members' columns at given places and their sessions at the end; null if a member has none.
        ReadOnlyMemory<double>? Mean(Func<Attribution, ReadOnlyMemory<double>?> numbers, Func<Attribution, IEnumerable<int>> places, int columns)
        {
            if (Array.Exists(members, one => numbers(one) is null))
                return null;
            var own = Array.ConvertAll(members, one => (Values: numbers(one)!.Value.ToArray(), Places: places(one).ToArray()));
            var length = own.Max(one => one.Values.Length / symbols / one.Places.Length);
            return RemoveUnusable(EnsembleManifest.Mean(Array.ConvertAll(own, one => Place(one.Values, one.Places, symbols, length, columns)), weights));
        }

        double[] RemoveUnusable(double[] values)
        {
            for (var cell = 0; cell < values.Length; cell++)
                values[cell] = double.IsFinite(point.Values[cell / (values.Length / symbols)]) ? values[cell] : double.NaN;
            return values;
        }
    }

    private static IEnumerable<(RowKind Kind, string Name)> KeysOf(Attribution attribution) => attribution.RowKinds.Zip(attribution.RowNames);

    private static double[] Place(double[] values, int[] places, int symbols, int length, int columns)
    {
        var (own, placed) = (values.Length / symbols / places.Length, new double[symbols * length * columns]);
        for (var cell = 0; cell < values.Length; cell++)
        {
            var (session, symbol) = (cell / places.Length % own, cell / places.Length / own);
            placed[(((symbol * length) + length - own + session) * columns) + places[cell % places.Length]] = values[cell];
        }

        return placed;
    }

    /// <summary>One number of an ensemble's forecast.</summary>
    /// <param name="Values">[S] in the target's unit; NaN for a symbol that a member cannot forecast.</param>
    /// <param name="Unit">[S] volatility over the horizon.</param>
    /// <param name="Tolerance">Largest relative gap that counts as converged.</param>
    /// <param name="Weights">[M][1] weights of the members; empty if all count alike.</param>
    internal sealed record Point(double[] Values, double[] Unit, double Tolerance, double[][] Weights);
}
