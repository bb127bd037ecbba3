using System.Globalization;
using System.Runtime.CompilerServices;
using System.Text;

namespace Quantra.Client.Managed;

/// <summary>Checks a request's bars; errors name the symbol, date, field and value.</summary>
internal static class BarChecks
{
    private const int LongestName = 64;
    private const int MostListed = 5;

    /// <summary>Checks the last sessions of a panel.</summary>
    /// <param name="panel">The panel.</param>
    /// <param name="most">Number of sessions; all if there are fewer.</param>
    /// <param name="arrays">Memory of the bars; null = their own.</param>
    /// <exception cref="QuantraException">MALFORMED_REQUEST: an array has the wrong length. BARS_INVALID: most symbols have an impossible bar.</exception>
    public static RawBars Check(BarPanel panel, int most = int.MaxValue, CallArrays? arrays = null)
    {
        if (panel.Symbols.Count == 0)
            throw PredictionError.Malformed("symbols: have 0, need at least 1; name each row", ("field", "symbols")).ToException();
        arrays ??= new();
        var shape = new PanelShape(panel.Symbols.Count, panel.Sessions.Length, Math.Min(panel.Sessions.Length, most));
        var sessions = arrays.Take<int>(shape.Kept);
        var sent = panel.Sessions.Span[^shape.Kept..];
        for (var index = 0; index < sessions.Length; index++)
            sessions[index] = Day.Of(sent[index]);
        var bars = new RawBars
        {
            Arrays = arrays,
            Symbols = panel.Symbols,
            Sessions = sessions,
            Open = Column("open", panel.Open, shape, arrays),
            High = Column("high", panel.High, shape, arrays),
            Low = Column("low", panel.Low, shape, arrays),
            Close = Column("close", panel.Close, shape, arrays),
            Volume = Column("volume", panel.Volume, shape, arrays),
            AdjustedClose = ReadOptionalColumn("adj_close", panel.AdjustedClose, shape, arrays),
            SplitRatio = ReadOptionalColumn("split_ratio", panel.SplitRatio, shape, arrays),
            CashDividend = ReadOptionalColumn("cash_dividend", panel.CashDividend, shape, arrays),
            Calendar = panel.Calendar,
        };
        CheckSymbols(bars.Symbols);
        CheckLabel("calendar", panel.Calendar);
        CheckLabel("currency", panel.Currency);
        CheckSessions(bars);
        if (bars.AdjustedClose is not null && (bars.SplitRatio is not null || bars.CashDividend is not null))
            throw PredictionError.Bars("pass adj_close, or split_ratio and cash_dividend, but not both: they may disagree").ToException();
        return RemoveImpossible(bars);
    }

    /// <summary>The bars, in which each symbol with an impossible bar has none; the error if more than half have one.</summary>
    private static RawBars RemoveImpossible(RawBars bars)
    {
        try
        {
            CheckValues(bars);
            return bars;
        }
        catch (QuantraException) when (bars.Symbols.Count > 1)
        {
            var (errors, cells) = (new Dictionary<string, QuantraError>(StringComparer.Ordinal), new bool[bars.Close.Length]);
            for (var row = 0; row < bars.Symbols.Count; row++)
            {
                try
                {
                    CheckValues(bars.Rows([row]));
                }
                catch (QuantraException error)
                {
                    errors.Add(bars.Symbols[row], error.Error);
                    cells.AsSpan(row * bars.Count, bars.Count).Fill(true);
                }
            }

            if (2 * errors.Count > bars.Symbols.Count)
                throw;
            return bars.RemoveCells(cells) with { Impossible = errors };
        }
    }

    private static void CheckValues(RawBars bars)
    {
        CheckBars(bars);
        if (bars.SplitRatio is { } ratios)
        {
            var sound = Array.ConvertAll(ratios, ratio => ratio > 0 && double.IsFinite(ratio));
            CheckEvents(bars, "split_ratio", ratios, sound, "a split ratio must be positive and finite, 3 for 3:1; 1 or empty for none");
        }

        CheckDividends(bars);
    }

    /// <summary>The last day, yyyymmdd, of which there can be bars; the exchange may be a day ahead.</summary>
    public static int FindLatestDay(DateTimeOffset now) => Day.Of(DateOnly.FromDateTime(now.UtcDateTime).AddDays(1));

    /// <summary>Checks that no bar is dated in the future.</summary>
    public static void CheckPast(RawBars bars, DateTimeOffset now)
    {
        if (bars.Sessions[^1] > FindLatestDay(now))
            CheckPast(bars.FindLastTraded() is { Length: > 0 } traded ? traded : bars.Symbols, bars.Sessions[^1], now);
    }

    /// <summary>Checks that the last session of symbols is not in the future.</summary>
    public static void CheckPast(IReadOnlyList<string> symbols, int last, DateTimeOffset now)
    {
        if (last <= FindLatestDay(now))
            return;
        var today = now.UtcDateTime.ToString("yyyy-MM-dd", CultureInfo.InvariantCulture);
        throw CreateSessionError(symbols, last, $"is in the future: today is {today}; check its year, and whether day and month are swapped");
    }

    private static double[] Column(string name, ReadOnlyMemory<double> values, PanelShape shape, CallArrays arrays)
    {
        var (symbols, sessions) = (shape.Symbols, shape.Sessions);
        if (values.Length == symbols * sessions)
        {
            var kept = arrays.Take<double>(symbols * shape.Kept);
            for (var row = 0; row < symbols; row++)
                values.Span.Slice(((row + 1) * sessions) - shape.Kept, shape.Kept).CopyTo(kept.AsSpan(row * shape.Kept));
            return kept;
        }

        var (have, need) = (values.Length * 8L, symbols * sessions * 8L);
        throw PredictionError.Malformed(
            FormattableString.Invariant($"bars.{name}: have {have} bytes, need {need} ({symbols} x {sessions} values of 8 bytes, float64, little-endian, row-major)"),
            ("field", "bars." + name),
            ("have", have.ToString(CultureInfo.InvariantCulture)),
            ("need", need.ToString(CultureInfo.InvariantCulture))).ToException();
    }

    private static double[]? ReadOptionalColumn(string name, ReadOnlyMemory<double> values, PanelShape shape, CallArrays arrays) =>
        values.IsEmpty ? null : Column(name, values, shape, arrays);

    private readonly record struct PanelShape(int Symbols, int Sessions, int Kept);

    /// <summary>Checks that symbols are unique and printable.</summary>
    public static void CheckSymbols(IReadOnlyList<string> symbols)
    {
        foreach (var symbol in symbols)
        {
            if (string.IsNullOrWhiteSpace(symbol) || !IsShortAndPrintable(symbol))
                throw PredictionError.Bars($"symbol {Quoted(symbol)} must have 1 to {LongestName} printable characters, not only blanks").ToException();
        }

        if (symbols.Count > 1 && symbols.Distinct(StringComparer.Ordinal).Count() != symbols.Count)
        {
            var twice = symbols.GroupBy(symbol => symbol, StringComparer.Ordinal).First(group => group.Count() > 1).Key;
            throw PredictionError.Bars($"symbol {twice} appears twice in the panel; give each symbol one row").ToException();
        }
    }

    private static void CheckLabel(string name, string text)
    {
        if (!IsShortAndPrintable(text))
            throw PredictionError.Bars($"{name} {Quoted(text)} must have at most {LongestName} printable characters").ToException();
    }

    private static bool IsShortAndPrintable(string text)
    {
        var count = 0;
        foreach (var rune in text.EnumerateRunes())
        {
            count++;
            var isOther = Rune.GetUnicodeCategory(rune) is UnicodeCategory.Control or UnicodeCategory.Format or UnicodeCategory.Surrogate
                or UnicodeCategory.PrivateUse or UnicodeCategory.OtherNotAssigned or UnicodeCategory.LineSeparator
                or UnicodeCategory.ParagraphSeparator or UnicodeCategory.SpaceSeparator;
            if (isOther && rune.Value != ' ')
                return false;
        }

        return count <= LongestName;
    }

    private static string Quoted(string text) => $"'{(text.Length > LongestName + 1 ? text[..(LongestName + 1)] : text)}'";

    private static void CheckSessions(RawBars bars)
    {
        if (bars.Count == 0)
            throw PredictionError.Bars("a panel needs at least one session, but has none").ToException();
        for (var index = 1; index < bars.Count; index++)
        {
            var (session, before) = (bars.Sessions[index], bars.Sessions[index - 1]);
            if (session == before)
                throw CreateSessionError(bars.Symbols, session, "appears twice; give each session one bar");
            if (session < before)
                throw CreateSessionError(bars.Symbols, session, $"comes after {Day.Show(before)}; sort the sessions, oldest first");
        }
    }

    private static QuantraException CreateSessionError(IReadOnlyList<string> symbols, int session, string problem)
    {
        var (names, day, value) = (PredictionError.Listed(symbols), Day.Show(session), session.ToString(CultureInfo.InvariantCulture));
        return PredictionError.Bars($"{names}: session {day} {problem}", ("symbol", names), ("date", day), ("field", "session"), ("value", value)).ToException();
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void CheckBars(RawBars bars)
    {
        var sound = bars.Arrays.Take<bool>(bars.Close.Length);
        for (var cell = 0; cell < sound.Length; cell++)
            sound[cell] = IsSound(bars, cell) || IsEmpty(bars, cell);
        var wrong = Array.IndexOf(sound, false);
        if (wrong < 0)
            return;
        var (row, column) = Math.DivRem(wrong, bars.Count);
        var (field, value, rule) = FindBrokenRule(bars, wrong);
        throw PredictionError.BarsAt(bars.Symbols[row], bars.Sessions[column], field, value, rule + ExplainColumns(bars, row) + CountOthers(bars, sound)).ToException();
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static bool IsSound(RawBars bars, int cell)
    {
        var (open, high, low, close, volume) = (bars.Open[cell], bars.High[cell], bars.Low[cell], bars.Close[cell], bars.Volume[cell]);
        return low > 0 && low <= open && open <= high && low <= close && close <= high && high < double.PositiveInfinity
            && !(volume < 0) && volume != double.PositiveInfinity
            && (bars.AdjustedClose is null || bars.AdjustedClose[cell] is > 0 and < double.PositiveInfinity);
    }

    private static bool IsEmpty(RawBars bars, int cell) =>
        double.IsNaN(bars.Open[cell]) && double.IsNaN(bars.High[cell]) && double.IsNaN(bars.Low[cell]) && double.IsNaN(bars.Close[cell])
        && double.IsNaN(bars.Volume[cell]) && (bars.AdjustedClose is null || double.IsNaN(bars.AdjustedClose[cell]));

    private static IEnumerable<(string Name, double[] Values)> Fields(RawBars bars)
    {
        yield return ("open", bars.Open);
        yield return ("high", bars.High);
        yield return ("low", bars.Low);
        yield return ("close", bars.Close);
        yield return ("volume", bars.Volume);
        if (bars.AdjustedClose is { } adjusted)
            yield return ("adj_close", adjusted);
    }

    private static (string Field, double Value, string Rule) FindBrokenRule(RawBars bars, int cell)
    {
        foreach (var (field, values) in Fields(bars))
        {
            var value = values[cell];
            if (double.IsNaN(value) && field != "volume")
                return (field, value, "the bar's other fields are numbers; leave all fields empty if there is no bar");
            if (double.IsInfinity(value))
                return (field, value, "it must be finite");
            if (field == "volume" && value < 0)
                return (field, value, "a volume must not be negative");
            if (field != "volume" && value <= 0)
                return (field, value, "a price must be positive");
        }

        var (low, high) = (bars.Low[cell], bars.High[cell]);
        var (name, price) = bars.Open[cell] < low || bars.Open[cell] > high ? ("open", bars.Open[cell]) : ("close", bars.Close[cell]);
        return price < low
            ? (name, price, $"it must not be below the low, {NumberText.General(low)}")
            : (name, price, $"it must not be above the high, {NumberText.General(high)}");
    }

    /// <summary>The part of a message that explains prices which are wrong on most days of a symbol.</summary>
    private static string ExplainColumns(RawBars bars, int row)
    {
        var (swapped, outside, days) = (0, 0, 0);
        for (var cell = row * bars.Count; cell < (row + 1) * bars.Count; cell++)
        {
            swapped += bars.High[cell] < bars.Low[cell] ? 1 : 0;
            outside += bars.Close[cell] > bars.High[cell] || bars.Close[cell] < bars.Low[cell] ? 1 : 0;
            days += double.IsFinite(bars.Close[cell]) ? 1 : 0;
        }

        if (swapped > days / 2.0)
            return FormattableString.Invariant($"; the high is below the low on {swapped} of {days} days: exchange the columns high and low");
        return outside > days / 2.0
            ? FormattableString.Invariant($"; the close is outside low and high on {outside} of {days} days: if open, high and low are adjusted and the close is not, or the reverse, give all four from columns of one kind")
            : "";
    }

    private static string CountOthers(RawBars bars, bool[] sound)
    {
        int[] places = [.. Enumerable.Range(0, sound.Length).Where(cell => !sound[cell]).Skip(1)];
        if (places.Length == 0)
            return "";
        string[] named = [.. places.Take(MostListed).Select(cell => $"{bars.Symbols[cell / bars.Count]} {Day.Show(bars.Sessions[cell % bars.Count])}")];
        return FormattableString.Invariant($"; {places.Length} more bar{(places.Length > 1 ? "s" : "")} must be corrected: {PredictionError.Listed(named, places.Length)}");
    }

    private static void CheckEvents(RawBars bars, string field, double[] values, bool[] sound, string rule)
    {
        for (var cell = 0; cell < values.Length; cell++)
            sound[cell] |= double.IsNaN(values[cell]);
        var wrong = Array.IndexOf(sound, false);
        if (wrong < 0)
            return;
        var (row, column) = Math.DivRem(wrong, bars.Count);
        throw PredictionError.BarsAt(bars.Symbols[row], bars.Sessions[column], field, values[wrong], rule + CountOthers(bars, sound)).ToException();
    }

    private static void CheckDividends(RawBars bars)
    {
        if (bars.CashDividend is not { } paid)
            return;
        var sound = Array.ConvertAll(paid, dividend => dividend >= 0 && double.IsFinite(dividend));
        CheckEvents(bars, "cash_dividend", paid, sound, "a dividend must be finite and not negative; 0 or empty for none");
        var kept = BarAdjustment.ComputeKeptShares(bars, BarAdjustment.ComputeLaterShares(bars));
        CheckEvents(bars, "cash_dividend", paid, Array.ConvertAll(kept, share => share > 0), "a dividend must be less than the close before it");
    }
}
