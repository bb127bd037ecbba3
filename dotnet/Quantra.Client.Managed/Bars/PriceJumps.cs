namespace Quantra.Client.Managed;

/// <summary>Price jumps that may be splits that the data does not record, or real moves.</summary>
internal static class PriceJumps
{
    /// <summary>A price above this multiple of the previous close, or below its inverse, is a jump.</summary>
    public const double LargestUsualMove = 1.4;

    private const double SplitTolerance = 0.04;
    private const int MostShown = 10;

    /// <summary>New and old shares of common splits.</summary>
    public static readonly (int New, int Old)[] CommonSplits = [(3, 2), (2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (10, 1), (15, 1), (20, 1)];

    /// <summary>Adds a warning for each of the first jumps of symbols with a forecast, and the number of the others; none if the bars record splits.</summary>
    public static void AddWarnings(RawBars bars, Dictionary<string, QuantraError> refusals, List<string> warnings)
    {
        if (bars.AdjustedClose is not null || bars.SplitRatio is not null)
            return;
        var before = BarAdjustment.CloseBefore(bars, bars.Close);
        var count = 0;
        for (var cell = 0; cell < before.Length; cell++)
        {
            var (opening, closing) = (bars.Open[cell] / before[cell], bars.Close[cell] / before[cell]);
            var ratio = IsJump(opening) ? opening : closing;
            if (IsJump(ratio) && !refusals.ContainsKey(bars.Symbols[cell / bars.Count]) && ++count <= MostShown)
                warnings.Add(Describe(bars.Symbols[cell / bars.Count], bars.Sessions[cell % bars.Count], ratio));
        }

        if (count > MostShown)
            warnings.Add(FormattableString.Invariant($"{count - MostShown} more prices jump like this; check the source of these bars"));
    }

    private static bool IsJump(double ratio) => ratio > LargestUsualMove || ratio < 1 / LargestUsualMove;

    private static string Describe(string symbol, int session, double ratio)
    {
        var split = NearestSplit(ratio);
        var hint = split.Length > 0 ? $" (a {split} split would look like this)" : "";
        return $"{symbol} {Day.Show(session)}: the price is {NumberText.General(ratio, 3)} times the close before{hint}: "
            + "split or crash? If it is a split, add split_ratio or adj_close; the bars stay unchanged";
    }

    private static string NearestSplit(double ratio)
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
