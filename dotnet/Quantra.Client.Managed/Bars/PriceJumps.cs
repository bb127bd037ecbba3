namespace Quantra.Client.Managed;

/// <summary>Price jumps that may be splits that the data does not record, real moves, or wrong closes.</summary>
internal static class PriceJumps
{
    /// <summary>A price above this multiple of the previous close, or below its inverse, is a jump.</summary>
    public const double LargestUsualMove = 1.4;

    /// <summary>A close that moves by a larger factor than the adjusted close jumps.</summary>
    private const double LargestCloseJump = 5;

    /// <summary>Sessions of wrong closes that are recognised; a split and its reverse by the same factor are farther apart.</summary>
    private const int LongestError = 20;

    private const double SplitTolerance = 0.04;
    private const int MostShown = 10;

    /// <summary>Log distance within which the close divided by the adjusted close counts as the same, because of later dividends.</summary>
    private static readonly double LevelTolerance = Math.Log(2);

    /// <summary>New and old shares of common splits.</summary>
    public static readonly (int New, int Old)[] CommonSplits = [(3, 2), (2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (10, 1), (15, 1), (20, 1)];

    /// <summary>Adds a warning for each of the first jumps of symbols with a forecast, and the number of the others; none if the bars record splits.</summary>
    public static void AddWarnings(RawBars bars, Dictionary<string, QuantraError> refusals, List<string> warnings)
    {
        if (bars.SplitRatio is not null)
            return;
        var count = bars.AdjustedClose is { } adjusted ? AddOfCloses(bars, adjusted, refusals, warnings) : AddOfPrices(bars, refusals, warnings);
        if (count > MostShown)
            warnings.Add($"{MessageFormat.Count(count - MostShown, "more price jump")} like these; check the source of the bars");
    }

    /// <summary>Adds the first jumps from close to open or close, and counts all.</summary>
    private static int AddOfPrices(RawBars bars, Dictionary<string, QuantraError> refusals, List<string> warnings)
    {
        var before = BarAdjustment.CloseBefore(bars, bars.Close);
        var count = 0;
        for (var cell = 0; cell < before.Length; cell++)
        {
            var (opening, closing) = (bars.Open[cell] / before[cell], bars.Close[cell] / before[cell]);
            var ratio = IsJump(opening) ? opening : closing;
            if (IsJump(ratio) && !refusals.ContainsKey(bars.Symbols[cell / bars.Count]) && ++count <= MostShown)
                warnings.Add(Describe(bars.Symbols[cell / bars.Count], bars.Sessions[cell % bars.Count], ratio));
        }

        return count;
    }

    /// <summary>Adds the first jumps of closes that adjusted closes lack and no split explains, and counts all.</summary>
    private static int AddOfCloses(RawBars bars, double[] adjusted, Dictionary<string, QuantraError> refusals, List<string> warnings)
    {
        var count = 0;
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            if (refusals.ContainsKey(bars.Symbols[row]) || !HasCloseJump(bars.Row(bars.Close, row), bars.Row(adjusted, row)))
                continue;
            foreach (var jump in CloseJumps(bars, adjusted, row))
            {
                if (++count <= MostShown)
                    warnings.Add(jump);
            }
        }

        return count;
    }

    /// <summary>The descriptions of a symbol's closes that jump.</summary>
    /// <remarks>
    /// A split takes the close towards the adjusted close, which it equals at the end, and stays. So a close that returns to the old level within
    /// <see cref="LongestError"/> sessions is wrong, and one that leaves the adjusted close in the last of them may be.
    /// </remarks>
    private static IEnumerable<string> CloseJumps(RawBars bars, double[] adjusted, int row)
    {
        var first = row * bars.Count;
        int[] cells = [.. Enumerable.Range(first, bars.Count).Where(cell => !double.IsNaN(bars.Close[cell]))];
        var levels = Array.ConvertAll(cells, cell => Math.Log(bars.Close[cell] / adjusted[cell]));
        for (var bar = 1; bar < cells.Length; bar++)
        {
            if (!IsJump(bar))
                continue;
            var (level, old, end) = (levels[bar], levels[bar - 1], Math.Min(bar + LongestError, cells.Length - 1));
            var back = bar + 1;
            while (back <= end && !(IsJump(back) && Math.Abs(levels[back] - old) < LevelTolerance))
                back++;
            var (isBack, nearest) = (back <= end, Math.Clamp(level, Math.Min(old, 0), Math.Max(old, 0)));
            if (isBack || (Math.Abs(level - nearest) > LevelTolerance && bar >= cells.Length - LongestError))
                yield return DescribeClose(bars, adjusted, cells[bar - 1], cells[bar], isBack ? bars.Sessions[cells[back] - first] : 0);
            bar = isBack ? back : bar;
        }

        bool IsJump(int bar) => Math.Abs(levels[bar] - levels[bar - 1]) > Math.Log(LargestCloseJump)
            && Math.Abs(Math.Log(adjusted[cells[bar]]) - Math.Log(adjusted[cells[bar - 1]])) <= Math.Log(LargestCloseJump);
    }

    /// <summary>Whether a close moves away from the adjusted close; a test without allocations.</summary>
    private static bool HasCloseJump(ReadOnlySpan<double> close, ReadOnlySpan<double> adjusted)
    {
        var before = double.NaN;
        for (var day = 0; day < close.Length; day++)
        {
            var level = close[day] / adjusted[day];
            if (IsJump(level / before, LargestCloseJump))
                return true;
            before = double.IsNaN(level) ? before : level;
        }

        return false;
    }

    private static bool IsJump(double ratio, double largest = LargestUsualMove) => ratio > largest || ratio < 1 / largest;

    private static string DescribeClose(RawBars bars, double[] adjusted, int before, int cell, int back)
    {
        var symbol = bars.Symbols[cell / bars.Count];
        var question = back > 0 ? "no split does that: a wrong close?" : "a split, or a wrong close? Forecast prices start from the last close";
        return $"{symbol} {Day.Show(bars.Sessions[cell % bars.Count])}: the close changes from {NumberText.General(bars.Close[before])} to "
            + $"{NumberText.General(bars.Close[cell])}{(back > 0 ? $" and back on {Day.Show(back)}" : "")}, the adjusted close from "
            + $"{NumberText.General(adjusted[before])} to {NumberText.General(adjusted[cell])}: {question}";
    }

    private static string Describe(string symbol, int session, double ratio)
    {
        var split = FindNearestSplit(ratio);
        var hint = split.Length > 0 ? $" (a {split} split would look like this)" : "";
        return $"{symbol} {Day.Show(session)}: the price is {NumberText.General(ratio, 3)} times the close before{hint}: "
            + "split or crash? If it is a split, add split_ratio or adj_close; the bars stay unchanged";
    }

    private static string FindNearestSplit(double ratio)
    {
        if (ratio is not (> 0 and < double.PositiveInfinity))
            return "";
        foreach (var (fresh, old) in CommonSplits)
        {
            if (Math.Abs(Math.Log(ratio) + Math.Log((double)fresh / old)) < SplitTolerance)
                return FormattableString.Invariant($"{fresh}:{old}");
            if (Math.Abs(Math.Log(ratio) - Math.Log((double)fresh / old)) < SplitTolerance)
                return FormattableString.Invariant($"{old}:{fresh}");
        }

        return "";
    }
}
