namespace Quantra.Client.Managed;

/// <summary>What is known of one symbol at the last session.</summary>
/// <param name="Bars">Bars in the encoder's sessions.</param>
/// <param name="Values">Known values in the window of the levels.</param>
/// <param name="LastClose">Raw close of the last session; NaN without a bar.</param>
/// <param name="Scale">Largest scale over the horizons; NaN if unknown.</param>
/// <param name="IsFlat">Whether a scale is at its lower bound.</param>
/// <param name="KnowsSomething">Whether any feature of the encoder is known.</param>
internal readonly record struct SymbolState(int Bars, int Values, double LastClose, double Scale, bool IsFlat, bool KnowsSomething);

/// <summary>Decides which symbols can be forecast, and describes those that cannot or only with a warning.</summary>
internal static class SymbolChecks
{
    /// <summary>Largest daily volatility as a log return. A larger one would overflow a price fan.</summary>
    public const double LargestScale = 10;

    /// <summary>Largest usable price; its inverse is the smallest.</summary>
    public const double LargestPrice = 1e100;

    private const int MostListed = 5;

    /// <summary>Whether a price fan can start from a price; false for NaN.</summary>
    public static bool CanAnchor(double price) => price is >= 1 / LargestPrice and <= LargestPrice;

    /// <summary>The error of a symbol that cannot be forecast; null if it can.</summary>
    public static QuantraError? Refusal(Pipeline pipeline, RawBars bars, int row, SymbolState state)
    {
        var symbol = bars.Symbols[row];
        if (double.IsNaN(state.LastClose))
            return NoLastBar(symbol, bars);
        if (state.Scale > LargestScale || !CanAnchor(state.LastClose))
        {
            var impossible = state.Scale > LargestScale
                ? $"a volatility of {NumberText.General(state.Scale, 3)} per day"
                : $"a last close of {NumberText.General(state.LastClose, 3)}";
            return PredictionError.NoUsableSymbol($"{symbol}: has {impossible}, which is impossible; check its prices");
        }

        if (state.Bars < pipeline.LeastBars)
            return TooFewBars(pipeline, symbol, state.Bars);
        if (state.Values < pipeline.LeastValues)
        {
            var what = FormattableString.Invariant($"values in the last {pipeline.Normaliser.Window} sessions for its volatility");
            return PredictionError.TooFewBars(symbol, state.Values, pipeline.LeastValues, what, pipeline.BarsNeeded);
        }

        return state.KnowsSomething && !double.IsNaN(state.Scale)
            ? null
            : PredictionError.NoUsableSymbol(FormattableString.Invariant($"{symbol}: has no known feature in the last {pipeline.EncoderLength} sessions"));
    }

    /// <summary>Rejects bars that are too short for every symbol, before missing sessions are filled in.</summary>
    /// <exception cref="QuantraException">TOO_FEW_BARS or NO_USABLE_SYMBOL.</exception>
    public static void CheckLength(Pipeline pipeline, RawBars bars)
    {
        if (bars.Count < pipeline.LeastBars)
            throw NoUsableSymbol([.. TooFewBars(pipeline, bars)]).ToException();
    }

    /// <summary>The error of a request without a usable symbol: the symbols' own error if all share it.</summary>
    public static QuantraError NoUsableSymbol(IReadOnlyList<QuantraError> refusals)
    {
        var first = refusals[0];
        if (refusals.Count == 1 && first.Reason is (QuantraReason.TooFewBars or QuantraReason.BarSuspect))
            return first;
        var messages = string.Join("; ", refusals.Take(MostListed).Select(error => error.Message));
        if (refusals.Count > MostListed)
            messages += FormattableString.Invariant($"; and {refusals.Count - MostListed} more symbols");
        foreach (var reason in (string[])[QuantraReason.TooFewBars, QuantraReason.BarSuspect])
        {
            if (refusals.All(error => error.Reason == reason))
                return first with { Message = messages };
        }

        return PredictionError.NoUsableSymbol($"no symbol can be forecast: {messages}");
    }

    /// <summary>A warning for each group of symbols with no forecast or a less reliable one.</summary>
    public static List<string> Warnings(Pipeline pipeline, RawBars bars, SymbolState[] states, Dictionary<string, QuantraError> refusals)
    {
        List<string> warnings = [];
        if (refusals.Count > 0)
            warnings.AddRange(refusals.Values.Take(MostListed).Select(error => $"no forecast of {error.Message}"));
        if (refusals.Count > MostListed)
            warnings.Add(FormattableString.Invariant($"no forecast of {refusals.Count - MostListed} more symbols either; the response has the reason for each"));
        PriceJumps.AddWarnings(bars, refusals, warnings);
        List<int>? thin = null, flat = null;
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            if (refusals.ContainsKey(bars.Symbols[row]))
                continue;
            if (bars.CountPresent(row) < pipeline.BarsNeeded)
                (thin ??= []).Add(row);
            if (states[row].IsFlat)
                (flat ??= []).Add(row);
        }

        if (thin is not null)
        {
            var fewest = thin.MinBy(bars.CountPresent);
            warnings.Add(FormattableString.Invariant(
                $"{Listed(bars, thin)}: forecast from fewer than the {pipeline.BarsNeeded} bars that the model reads, {bars.Symbols[fewest]} from {bars.CountPresent(fewest)}; missing feature values count as unknown"));
        }

        if (flat is not null)
            warnings.Add($"{Listed(bars, flat)}: its price is nearly constant, so the width of the forecast comes from the model's minimum volatility, {NumberText.General(pipeline.Normaliser.Floor)} per day");
        return warnings;
    }

    private static string Listed(RawBars bars, List<int> rows) => PredictionError.Listed(rows.ConvertAll(row => bars.Symbols[row]));

    private static QuantraError NoLastBar(string symbol, RawBars bars) =>
        PredictionError.NoUsableSymbol($"{symbol}: has no bar on the panel's last session, {Day.Show(bars.Sessions[^1])}");

    private static IEnumerable<QuantraError> TooFewBars(Pipeline pipeline, RawBars bars) => bars.Symbols.Select((symbol, row) =>
        bars.IsPresent(row, bars.Count - 1) ? TooFewBars(pipeline, symbol, bars.CountPresent(row)) : NoLastBar(symbol, bars));

    private static QuantraError TooFewBars(Pipeline pipeline, string symbol, int have) => PredictionError.TooFewBars(
        symbol,
        have,
        pipeline.LeastBars,
        FormattableString.Invariant($"bars in the last {pipeline.EncoderLength} sessions"),
        pipeline.BarsNeeded);
}
