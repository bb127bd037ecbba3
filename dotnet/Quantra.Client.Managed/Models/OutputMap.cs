namespace Quantra.Client.Managed;

/// <summary>Maps a network's output to calibrated quantiles in the target's unit.</summary>
/// <param name="Spread">[H] growth of the target's scale with the horizon.</param>
/// <param name="Offsets">[H][Q] conformal offsets in units of the window's scale.</param>
/// <param name="Levels">[Q] quantile levels.</param>
internal sealed record OutputMap(double[] Spread, double[][] Offsets, double[] Levels)
{
    /// <summary>Index of the level nearest to the median; other quantiles never cross it.</summary>
    public int Anchor { get; } = QuantileHead<Wide128>.AnchorOf(Levels);

    /// <summary>A calibrated quantile in units of the scale, and the quantile that it equals: itself, or the one that it would cross.</summary>
    /// <param name="units">[Q] of one horizon.</param>
    /// <param name="horizon">Index of the horizon.</param>
    /// <param name="quantile">Index of the quantile.</param>
    /// <param name="share">Share of the offsets to add.</param>
    public (double Units, int Source) Calibrate(ReadOnlySpan<double> units, int horizon, int quantile, double share)
    {
        var (source, step) = (Anchor, Math.Sign(quantile - Anchor));
        var best = units[source] + (share * Offsets[horizon][source]);
        for (var q = source; q != quantile;)
        {
            q += step;
            var own = units[q] + (share * Offsets[horizon][q]);
            if (step * (own - best) >= 0)
                (best, source) = (own, q);
        }

        return (best, source);
    }

    /// <summary>A calibrated quantile of one row in the target's unit.</summary>
    /// <param name="units">[N, H, Q]</param>
    /// <param name="inputs">The inputs of all rows.</param>
    /// <param name="row">Index of the row.</param>
    /// <param name="point">Indices of horizon and quantile.</param>
    /// <param name="share">Share of the offsets to add.</param>
    public double ValueAt(ReadOnlySpan<double> units, NetworkInputs inputs, int row, (int Horizon, int Quantile) point, double share)
    {
        var level = (row * Spread.Length) + point.Horizon;
        var calibrated = Calibrate(units.Slice(level * Levels.Length, Levels.Length), point.Horizon, point.Quantile, share).Units;
        return inputs.Location[level] + (inputs.Scale[level] * Spread[point.Horizon] * calibrated);
    }

    /// <summary>Reads the quantiles and conformal offsets of a manifest.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a number is missing or invalid.</exception>
    public static OutputMap Read(JsonRecord manifest, Target target)
    {
        var levels = manifest.Numbers("quantiles");
        var isRising = levels.Length > 0 && Array.TrueForAll(levels, level => level is > 0 and < 1) && Enumerable.Range(1, levels.Length - 1).All(k => levels[k - 1] < levels[k]);
        if (!isRising)
            throw manifest.Refusal("quantiles", "must be ascending levels between 0 and 1");
        var conformal = manifest.Record("conformal");
        var (offsets, samples) = (conformal.Rows("offsets"), conformal.Numbers("effective_samples"));
        conformal.End();
        var horizons = target.Horizons.Length;
        return offsets.Length == horizons && samples.Length == horizons && Array.TrueForAll(offsets, row => row.Length == levels.Length)
            ? new OutputMap(target.Spread(), offsets, levels)
            : throw manifest.Refusal("conformal", $"offsets must be {horizons} rows of {levels.Length} numbers");
    }

    /// <summary>Converts units [N, H, Q] to values in the target's unit, in place.</summary>
    public void Calibrate(Span<double> units, NetworkInputs inputs)
    {
        var (horizons, quantiles, anchor) = (Spread.Length, Levels.Length, Anchor);
        for (var cell = 0; cell < inputs.Rows * horizons; cell++)
        {
            var row = units.Slice(cell * quantiles, quantiles);
            for (var q = 0; q < quantiles; q++)
                row[q] += Offsets[cell % horizons][q];
            Uncross(row, anchor);
            var (location, scale) = (inputs.Location[cell], inputs.Scale[cell] * Spread[cell % horizons]);
            for (var q = 0; q < quantiles; q++)
                row[q] = location + (scale * row[q]);
        }
    }

    /// <summary>Adds the offsets to values [S, H, Q] in the target's unit, and uncrosses them.</summary>
    /// <param name="values">The values, which are changed.</param>
    /// <param name="scale">[S, H] volatility of the windows.</param>
    public void AddOffsets(Span<double> values, ReadOnlySpan<double> scale)
    {
        var (horizons, quantiles, anchor) = (Spread.Length, Levels.Length, Anchor);
        for (var cell = 0; cell < scale.Length; cell++)
        {
            var row = values.Slice(cell * quantiles, quantiles);
            var unit = scale[cell] * Spread[cell % horizons];
            for (var q = 0; q < quantiles; q++)
                row[q] += unit * Offsets[cell % horizons][q];
            Uncross(row, anchor);
        }
    }

    private static void Uncross(Span<double> row, int anchor)
    {
        for (var q = anchor + 1; q < row.Length; q++)
            row[q] = Math.Max(row[q], row[q - 1]);
        for (var q = anchor - 1; q >= 0; q--)
            row[q] = Math.Min(row[q], row[q + 1]);
    }
}
