namespace Quantra.Client.Managed;

/// <summary>Bars without those of days on which a symbol did not trade; they end with the last session on which any symbol traded.</summary>
/// <param name="Bars">The bars.</param>
/// <param name="Warnings">Notes on what was left out.</param>
/// <param name="Idle">Symbols that did not trade on the last session, though others did.</param>
internal readonly record struct TradedBars(RawBars Bars, IReadOnlyList<string> Warnings, IReadOnlyList<string> Idle)
{
    /// <summary>Share of days without a trade above which a note says so.</summary>
    private const double OftenUntraded = 0.05;

    public static TradedBars Of(RawBars bars)
    {
        if (!bars.Volume.AsSpan().Contains(0))
            return new(bars, [], []);
        var cells = FindUntradedCells(bars);
        return Array.IndexOf(cells, true) < 0 ? new(bars, [], []) : Of(bars, cells);
    }

    private static TradedBars Of(RawBars bars, bool[] cells)
    {
        var (traded, notes) = (bars.RemoveCells(cells), new List<string>());
        var end = bars.Count - 1;
        while (!Enumerable.Range(0, bars.Symbols.Count).Any(row => traded.IsPresent(row, end)))
            end--;
        if (end < bars.Count - 1)
        {
            traded = traded.OnPositions(bars.Sessions[..(end + 1)], [.. Enumerable.Range(0, end + 1)]);
            notes.Add(
                $"{PredictionError.Listed(bars.Symbols)}: no trade after {Day.Show(bars.Sessions[end])}: the later bars repeat the close with a volume "
                + "of 0 and are left out");
        }

        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            var count = cells.AsSpan(row * bars.Count, bars.Count).Count(true);
            if ((double)count / bars.Count > OftenUntraded)
                notes.Add(FormattableString.Invariant($"{bars.Symbols[row]}: no trade on {count} of {bars.Count} days, which count as days without a bar"));
        }

        string[] idle = [.. bars.Symbols.Where((_, row) => cells[(row * bars.Count) + end])];
        return new(traded, notes, idle);
    }

    /// <summary>Bars whose prices all equal the close before, with a volume of 0, [S, T].</summary>
    private static bool[] FindUntradedCells(RawBars bars)
    {
        var cells = new bool[bars.Close.Length];
        var before = BarAdjustment.CloseBefore(bars, bars.Close);
        for (var cell = 0; cell < cells.Length; cell++)
        {
            var close = before[cell];
            cells[cell] = bars.Volume[cell] == 0 && bars.Open[cell] == close && bars.High[cell] == close && bars.Low[cell] == close && bars.Close[cell] == close;
        }

        return cells;
    }
}
