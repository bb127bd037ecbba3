namespace Quantra.Client.Managed;

/// <summary>Widths of a network's groups of inputs.</summary>
/// <param name="EncoderLength">Sessions that the network reads (T).</param>
/// <param name="FutureLength">Sessions after the last one that known features cover (D).</param>
/// <param name="Observed">Observed features (F).</param>
/// <param name="Known">Columns of known features (K).</param>
/// <param name="Static">Columns of static variables (C).</param>
/// <param name="StaticWidths">Columns of each static variable.</param>
/// <param name="Nodes">Number of stocks in a network's graph (U).</param>
internal sealed record InputSizes(
    int EncoderLength, int FutureLength, int Observed, int Known, int Static, int[] StaticWidths, int Nodes = 0)
{
    /// <summary>Width of a session's row: observed features, known features and the share of known cells.</summary>
    public int RowWidth => Observed + Known + 1;
}

/// <summary>Windows of N rows.</summary>
internal sealed class NetworkInputs
{
    /// <summary>Number of rows (N).</summary>
    public required int Rows { get; init; }

    /// <summary>[N, T, F] scaled features, 0 where unknown.</summary>
    public required float[] Observed { get; init; }

    /// <summary>[N, T + D, K], or [1, T + D, K] if all rows have the same.</summary>
    public required float[] Known { get; init; }

    /// <summary>[N, C]</summary>
    public required float[] Static { get; init; }

    /// <summary>[N, T, F] true where the observed cell is known.</summary>
    public required bool[] Mask { get; init; }

    /// <summary>[N, H] expected level of the target.</summary>
    public required double[] Location { get; init; }

    /// <summary>[N, H] expected volatility per day.</summary>
    public required double[] Scale { get; init; }

    /// <summary>[N] index of each row in the universe of a graph network, at most once per panel, -1 = unknown; empty for other networks.</summary>
    public int[] Nodes { get; init; } = [];

    /// <summary>Number of panels of equal size, one after the other.</summary>
    public int Panels { get; init; } = 1;

    /// <summary>Rows of a panel.</summary>
    public int Members => Rows / Panels;

    /// <summary>The observed features [T, F] of a row.</summary>
    public ReadOnlySpan<float> ObservedOf(int row) => RowOf(Observed, row, Rows);

    /// <summary>The mask [T, F] of a row.</summary>
    public ReadOnlySpan<bool> MaskOf(int row) => Mask.AsSpan(Mask.Length / Rows * row, Mask.Length / Rows);

    /// <summary>The known features [T + D, K] of a row.</summary>
    /// <param name="row">The row.</param>
    /// <param name="length">(T + D) * K</param>
    public ReadOnlySpan<float> KnownOf(int row, int length) => Known.AsSpan(Known.Length == length ? 0 : row * length, length);

    /// <summary>The static columns [C] of a row.</summary>
    public ReadOnlySpan<float> StaticOf(int row) => RowOf(Static, row, Rows);

    /// <summary>The same windows as one panel of a graph network.</summary>
    /// <param name="nodes">[N]</param>
    public NetworkInputs AsPanel(int[] nodes) => new()
    {
        Rows = Rows,
        Observed = Observed,
        Known = Known,
        Static = Static,
        Mask = Mask,
        Location = Location,
        Scale = Scale,
        Nodes = nodes,
    };

    private static ReadOnlySpan<float> RowOf(float[] values, int row, int rows) =>
        values.AsSpan(values.Length / rows * row, values.Length / rows);
}
