using System.Collections.ObjectModel;

namespace Quantra.Client.Managed;

/// <summary>Checked raw bars of S symbols on T sessions; arrays are [S, T], NaN = no bar. Its arrays are never changed.</summary>
internal sealed record RawBars
{
    private readonly int[]? _sentSessions;

    /// <summary>Memory for arrays computed from these bars.</summary>
    public required CallArrays Arrays { get; init; }

    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>yyyymmdd, ascending.</summary>
    public required int[] Sessions { get; init; }

    public required double[] Open { get; init; }

    public required double[] High { get; init; }

    public required double[] Low { get; init; }

    public required double[] Close { get; init; }

    /// <summary>NaN beside prices = unknown.</summary>
    public required double[] Volume { get; init; }

    public double[]? AdjustedClose { get; init; }

    public double[]? SplitRatio { get; init; }

    public double[]? CashDividend { get; init; }

    /// <summary>The sessions of the request, which its covariates have.</summary>
    public int[] SentSessions
    {
        get => _sentSessions ?? Sessions;
        init => _sentSessions = value;
    }

    /// <summary>The exchange's code; empty = unknown.</summary>
    public string Calendar { get; init; } = "";

    /// <summary>The error of each symbol that was sent with an impossible bar or one on a wrong session, and therefore has no bars here.</summary>
    public IReadOnlyDictionary<string, QuantraError> Impossible { get; init; } = ReadOnlyDictionary<string, QuantraError>.Empty;

    public int Count => Sessions.Length;

    /// <summary>Whether no column records splits and dividends.</summary>
    public bool IsUnadjusted => AdjustedClose is null && SplitRatio is null && CashDividend is null;

    /// <summary>Whether a symbol has a bar.</summary>
    public bool IsPresent(int symbol, int session) => !double.IsNaN(Close[(symbol * Count) + session]);

    /// <summary>Symbols with a bar on the last session.</summary>
    public string[] FindLastTraded() => [.. Symbols.Where((_, symbol) => IsPresent(symbol, Count - 1))];

    /// <summary>Number of bars of a symbol.</summary>
    public int CountPresent(int symbol)
    {
        var count = 0;
        foreach (var close in Row(Close, symbol))
            count += double.IsNaN(close) ? 0 : 1;
        return count;
    }

    /// <summary>A row of a column.</summary>
    public ReadOnlySpan<double> Row(double[] column, int symbol) => column.AsSpan(symbol * Count, Count);

    /// <summary>The last sessions, or all if there are fewer.</summary>
    public RawBars Last(int count) => count >= Count ? this : OnPositions(Sessions[^count..], [.. Enumerable.Range(Count - count, count)]);

    /// <summary>The bars on other sessions.</summary>
    /// <param name="sessions">The new sessions.</param>
    /// <param name="positions">Index of each in the present ones; -1 = without bars.</param>
    public RawBars OnPositions(int[] sessions, int[] positions) => With(sessions, column => Move(column, positions));

    /// <summary>The bars on other sessions, ascending.</summary>
    public RawBars OnSessions(int[] sessions) => sessions.AsSpan().SequenceEqual(Sessions)
        ? this
        : OnPositions(sessions, Array.ConvertAll(sessions, day => Math.Max(-1, Array.BinarySearch(Sessions, day))));

    /// <summary>Some symbols, by their indexes in ascending order.</summary>
    public RawBars Rows(IReadOnlyList<int> rows) => rows.Count == Symbols.Count ? this : With(Sessions, column =>
    {
        var part = new double[rows.Count * Count];
        for (var index = 0; index < rows.Count; index++)
            Row(column, rows[index]).CopyTo(part.AsSpan(index * Count));
        return part;
    }) with
    { Symbols = [.. rows.Select(row => Symbols[row])] };

    /// <summary>The bars without those of some cells, [S, T].</summary>
    public RawBars RemoveCells(bool[] cells) => Array.IndexOf(cells, true) < 0 ? this : With(Sessions, column => EmptyCells(column, cells));

    /// <summary>The bars with unknown volumes in some cells, [S, T].</summary>
    public RawBars RemoveVolumes(bool[] cells) => Array.IndexOf(cells, true) < 0 ? this : this with { Volume = EmptyCells(Volume, cells) };

    private static double[] EmptyCells(double[] column, bool[] cells)
    {
        var copy = (double[])column.Clone();
        for (var cell = 0; cell < copy.Length; cell++)
        {
            if (cells[cell])
                copy[cell] = double.NaN;
        }

        return copy;
    }

    private double[] Move(double[] column, int[] positions)
    {
        var moved = new double[Symbols.Count * positions.Length];
        for (var symbol = 0; symbol < Symbols.Count; symbol++)
        {
            var row = Row(column, symbol);
            for (var index = 0; index < positions.Length; index++)
                moved[(symbol * positions.Length) + index] = positions[index] < 0 ? double.NaN : row[positions[index]];
        }

        return moved;
    }

    private RawBars With(int[] sessions, Func<double[], double[]> change) => this with
    {
        Sessions = sessions,
        Open = change(Open),
        High = change(High),
        Low = change(Low),
        Close = change(Close),
        Volume = change(Volume),
        AdjustedClose = AdjustedClose is null ? null : change(AdjustedClose),
        SplitRatio = SplitRatio is null ? null : change(SplitRatio),
        CashDividend = CashDividend is null ? null : change(CashDividend),
    };
}
