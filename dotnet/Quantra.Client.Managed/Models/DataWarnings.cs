using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Warnings about data that the model was trained with and a request lacks, or the reverse.</summary>
internal static class DataWarnings
{
    private const int MostWarnings = 20;
    private const int LongestWarning = 1000;
    private const double ManyUnknown = 0.2;
    private const double ManyZero = 0.5;

    /// <summary>The warnings about a request of bars.</summary>
    /// <param name="networks">The model's network, or those of an ensemble's members.</param>
    /// <param name="bars">The bars of the request; null for feature windows.</param>
    /// <param name="symbols">Symbols that have a forecast.</param>
    public static List<string> Of(ReadOnlySpan<TrainingSummary> networks, RawBars? bars, IReadOnlyList<string> symbols)
    {
        var warnings = new List<string>();
        if (bars is not null)
        {
            var (last, readsVolume, isAdjusted) = (1, false, false);
            foreach (var network in networks)
            {
                last = network.ReadsVolume ? Math.Max(last, network.BarsNeeded) : last;
                readsVolume |= network.ReadsVolume;
                isAdjusted |= network.Card.IsAdjusted;
            }

            AddOfBars(bars.Last(last), symbols, readsVolume, isAdjusted, warnings);
        }

        List<string>? unseen = null;
        for (var row = 0; row < symbols.Count; row++)
        {
            if (IsUnseen(networks, symbols[row]))
                (unseen ??= []).Add(symbols[row]);
        }

        if (unseen is not null)
        {
            warnings.Add($"{PredictionError.Listed(unseen)}: not among the symbols that {(networks.Length == 1 ? "the model was" : "all members were")} trained on, "
                + "so its scores do not apply to them; evaluate it on their bars (quantra evaluate), or train with them");
        }

        return warnings;
    }

    /// <summary>Shortens the first warnings and counts the rest in a last one.</summary>
    public static string[] Limit(List<string> warnings)
    {
        var left = warnings.Count - MostWarnings;
        string[] limited = [.. left <= 0 ? warnings : [.. warnings[..MostWarnings], FormattableString.Invariant($"{left} more warnings were left out")]];
        foreach (ref var line in limited.AsSpan())
            line = line.Length <= LongestWarning ? line : $"{line[..LongestWarning]} …";
        return limited;
    }

    /// <summary>Whether a network was trained without a symbol, of which no other network warns itself.</summary>
    private static bool IsUnseen(ReadOnlySpan<TrainingSummary> networks, string symbol)
    {
        var isUnseen = false;
        foreach (var network in networks)
        {
            if (network.Card.Symbols?.Contains(symbol) != false)
                continue;
            if (network.KnowsByName)
                return false;
            isUnseen = true;
        }

        return isUnseen;
    }

    private static void AddOfBars(RawBars bars, IReadOnlyList<string> symbols, bool readsVolume, bool isAdjusted, List<string> warnings)
    {
        if (readsVolume && !Array.TrueForAll(bars.Volume, volume => volume > 0))
            warnings.AddRange(OfVolumes(bars, symbols.ToHashSet(StringComparer.Ordinal)));
        if (isAdjusted && bars.IsUnadjusted)
        {
            warnings.Add("the model was trained on bars with splits and dividends, and these bars record none, so one among them "
                + "would look like a crash; give adj_close, or split_ratio and cash_dividend, unless there was none");
        }
    }

    private static IEnumerable<string> OfVolumes(RawBars bars, HashSet<string> symbols)
    {
        const string Advice = "give the shares traded, or train with features that read no volume (--features prices)";
        VolumeCounts[] counts = [.. Enumerable.Range(0, bars.Symbols.Count).Where(row => symbols.Contains(bars.Symbols[row])).Select(row => VolumeCounts.Of(bars, row))];
        if (Named(counts, one => one.IsSilent) is { Length: > 0 } silent)
            yield return $"{Listed(silent)}: every volume that the model reads is 0 or empty, so its volume features carry no information; {Advice}";
        if (Named(counts, one => !one.IsSilent && one.UnknownShare > ManyUnknown) is { Length: > 0 } sparse)
            yield return $"{Listed(sparse)}: the volume is empty on up to {Percent(sparse.Max(one => one.UnknownShare))} of the days that the model reads; {Advice}";
        if (Named(counts, one => !one.IsSilent && one.ZeroShare >= ManyZero) is { Length: > 0 } zero)
            yield return $"{Listed(zero)}: the volume is 0 on up to {Percent(zero.Max(one => one.ZeroShare))} of the days that the model reads; {Advice}";
        if (Named(counts, one => !one.IsSilent && one.UnknownShare <= ManyUnknown && one.Unknown > 0) is { Length: > 0 } some)
            yield return FormattableString.Invariant($"{Listed(some)}: days with an empty volume: {some.Sum(one => one.Unknown)}; the volume features are masked where their window contains one");

        static VolumeCounts[] Named(VolumeCounts[] counts, Predicate<VolumeCounts> condition) => Array.FindAll(counts, condition);
        static string Listed(VolumeCounts[] counts) => PredictionError.Listed(Array.ConvertAll(counts, one => one.Symbol));
        static string Percent(double share) => (100 * share).ToString("F0", CultureInfo.InvariantCulture) + "%";
    }

    private readonly record struct VolumeCounts(string Symbol, int Present, int Unknown, int Zero, bool IsTraded)
    {
        public bool IsSilent => Present > 0 && !IsTraded;

        public double UnknownShare => (double)Unknown / Math.Max(Present, 1);

        public double ZeroShare => (double)Zero / Math.Max(Present, 1);

        public static VolumeCounts Of(RawBars bars, int row)
        {
            var close = bars.Row(bars.Close, row);
            var volume = bars.Row(bars.Volume, row);
            var (present, unknown, zero, isTraded) = (0, 0, 0, false);
            for (var day = 0; day < close.Length; day++)
            {
                present += double.IsNaN(close[day]) ? 0 : 1;
                unknown += !double.IsNaN(close[day]) && double.IsNaN(volume[day]) ? 1 : 0;
                zero += volume[day] == 0 ? 1 : 0;
                isTraded |= volume[day] > 0;
            }

            return new(bars.Symbols[row], present, unknown, zero, isTraded);
        }
    }
}
