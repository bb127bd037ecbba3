using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Finds bars that cannot be true, judged by the history of their own symbol.</summary>
/// <remarks>
/// A move is impossible if it exceeds a factor of 5 in one session and 20 robust standard deviations of the symbol's log returns. Prices are
/// judged after adjustment, so recorded splits and dividends are not moves.
/// </remarks>
internal sealed class SuspectFinder
{
    /// <summary>Log returns up to this size are possible for any symbol.</summary>
    public static readonly double LargestMove = Math.Log(5);

    private const double Deviations = 20;
    private const double LeastDeviation = 0.002;
    private const int FewReturns = 20;
    private const double DeviationOfFew = 0.05;
    private const int LongGap = 20;
    private const double CompanyDeviations = 6;
    private const double MadToDeviation = 1.4826;
    private const double LargestLog = 700;
    private const int SampledDays = 8;

    private static readonly double LargestVolumeMove = Math.Log(1000);
    private static readonly double UnusualMove = Math.Log(1.5);
    private static readonly double CompanyMove = Math.Log(2);

    private readonly string _symbol;
    private readonly int[] _sessions;
    private readonly int[] _gaps;
    private readonly double[] _high;
    private readonly double[] _low;
    private readonly double[] _levels;
    private readonly double[] _returns;
    private readonly Dictionary<string, double[]> _raw;
    private readonly double _center;
    private readonly double _deviation;

    private SuspectFinder(RawBars bars, AdjustedBars adjusted, int row)
    {
        var first = row * bars.Count;
        int[] present = [.. Enumerable.Range(first, bars.Count).Where(cell => double.IsFinite(adjusted.Close[cell]))];
        _symbol = bars.Symbols[row];
        _sessions = Array.ConvertAll(present, cell => bars.Sessions[cell - first]);
        _high = Take(adjusted.High);
        _low = Take(adjusted.Low);
        _levels = Array.ConvertAll(Take(adjusted.Close), Math.Log);
        _raw = new()
        {
            ["open"] = Take(bars.Open),
            ["high"] = Take(bars.High),
            ["low"] = Take(bars.Low),
            ["close"] = Take(bars.Close),
            ["volume"] = Take(bars.Volume),
        };
        var moves = Math.Max(0, present.Length - 1);
        _gaps = [.. Enumerable.Range(0, moves).Select(index => Math.Max(CountWeekdays(_sessions[index], _sessions[index + 1]) - 1, 0))];
        _returns = [.. Enumerable.Range(0, moves).Select(index => _levels[index + 1] - _levels[index])];
        (_center, _deviation) = ComputeRobustScale(_returns);

        double[] Take(double[] column) => Array.ConvertAll(present, cell => column[cell]);
    }

    /// <summary>All bars that contradict the history of their symbol, by symbol and date.</summary>
    public static List<SuspectBars> Find(RawBars bars)
    {
        var (adjusted, _) = BarAdjustment.Adjust(bars);
        return [.. Enumerable.Range(0, bars.Symbols.Count)
            .Where(row => MayBeSuspect(bars, adjusted, row))
            .SelectMany(row => new SuspectFinder(bars, adjusted, row).FindSuspects())];
    }

    /// <summary>Whether any symbol may have suspect bars: a cheap test. Symbols that pass have none.</summary>
    public static bool MayBeSuspect(RawBars bars, AdjustedBars adjusted)
    {
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            if (MayBeSuspect(bars, adjusted, row))
                return true;
        }

        return false;
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static bool MayBeSuspect(RawBars bars, AdjustedBars adjusted, int row)
    {
        var (range, level, before) = (0.0, 1.0, double.NaN);
        for (var cell = row * bars.Count; cell < (row + 1) * bars.Count; cell++)
        {
            var close = adjusted.Close[cell];
            range = ComputeMax(range, adjusted.High[cell] / adjusted.Low[cell]);
            level = ComputeMax(level, ComputeMax(close / before, before / close));
            if (!double.IsNaN(close))
                before = close;
        }

        return range > Math.Exp(LargestMove) || level > Math.Exp(UnusualMove) || MayHaveWrongVolume(bars, row);
    }

    /// <summary>The bars without single suspect bars, and with unknown volumes where these are suspect.</summary>
    public static RawBars Without(RawBars bars, IReadOnlyList<SuspectBars> suspects) =>
        bars.RemoveVolumes(SelectCells(bars, suspects, SuspectKind.Volume)).RemoveCells(SelectCells(bars, suspects, SuspectKind.Bar));

    private static bool[] SelectCells(RawBars bars, IReadOnlyList<SuspectBars> suspects, SuspectKind kind)
    {
        var cells = new bool[bars.Close.Length];
        foreach (var suspect in suspects.Where(one => one.Kind == kind))
        {
            var row = Enumerable.Range(0, bars.Symbols.Count).First(index => bars.Symbols[index] == suspect.Symbol);
            foreach (var session in suspect.Sessions)
                cells[(row * bars.Count) + Array.BinarySearch(bars.Sessions, session)] = true;
        }

        return cells;
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static double ComputeMax(double left, double right) => double.IsNaN(left) ? right : double.IsNaN(right) ? left : Math.Max(left, right);

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static bool MayHaveWrongVolume(RawBars bars, int row)
    {
        var volume = bars.Row(bars.Volume, row);
        var (highest, last) = (double.NaN, double.NaN);
        var (sample, count) = (bars.Arrays.Take<double>((volume.Length / SampledDays) + 1), 0);
        for (var index = 0; index < volume.Length; index++)
        {
            var traded = volume[index] > 0 ? volume[index] : double.NaN;
            highest = ComputeMax(highest, traded);
            if (traded > 0)
                last = traded;
            if (index % SampledDays == 0 && double.IsFinite(traded))
                sample[count++] = traded;
        }

        Array.Sort(sample, 0, count);
        var middle = count > 0 ? sample[count / 2] : double.NaN;
        var far = Math.Exp(LargestVolumeMove) / 2; // the median of all days differs
        return highest > middle * far || last * far < middle;
    }

    private List<SuspectBars> FindSuspects()
    {
        List<SuspectBars> found = [.. FindMoves(), .. FindRanges(), .. FindVolumes()];
        var closes = found.Where(bar => bar.Kind == SuspectKind.Bar && bar.Field == "close").Select(bar => bar.Sessions[0]).ToHashSet();
        return [.. found
            .Where(bar => bar.Field is "close" or "volume" || !closes.Contains(bar.Sessions[0]))
            .OrderBy(bar => bar.Sessions, Comparer<int[]>.Create((left, right) => left.AsSpan().SequenceCompareTo(right)))];
    }

    /// <summary>Suspects by the returns from close to close.</summary>
    private IEnumerable<SuspectBars> FindMoves()
    {
        var limit = Math.Max(LargestMove, Deviations * _deviation);
        var moves = Array.ConvertAll(_returns, value => value - _center);
        int[] large = [.. Enumerable.Range(0, moves.Length).Where(index => Math.Abs(moves[index]) > limit)];
        for (var place = 0; place < large.Length;)
        {
            var start = large[place];
            if (ReturnToLevel(start, large[(place + 1)..]) is not { } end)
            {
                yield return CreateLevelChange(start + 1, null);
                place++;
            }
            else if (end == start + 1)
            {
                yield return CreateBarSuspect(start + 1, "close", moves[start]);
                place += 2;
            }
            else
            {
                yield return CreateLevelChange(start + 1, end + 1);
                place = Array.BinarySearch(large, end) + 1;
            }
        }

        var unusual = Math.Max(UnusualMove, Deviations * _deviation);
        if (moves.Length > 0 && Math.Abs(moves[^1]) > unusual && Math.Abs(moves[^1]) <= limit && _gaps[^1] < LongGap)
            yield return CreateSuspect(SuspectKind.Level, _sessions.Length - 1, "close", moves[^1], [_sessions[^1]]);
        for (var start = 0; start < _gaps.Length; start++)
        {
            var least = Math.Max(CompanyMove, CompanyDeviations * _deviation * Math.Sqrt(_gaps[start]));
            if (_gaps[start] >= LongGap && Math.Abs(moves[start]) > least && Math.Abs(moves[start]) <= limit)
                yield return CreateCompanySuspect(start + 1);
        }
    }

    /// <summary>The index of the large return that takes back the one at <paramref name="start"/>; null if the new level stays.</summary>
    private int? ReturnToLevel(int start, int[] later)
    {
        foreach (var index in later)
        {
            if (Math.Abs(_levels[index + 1] - _levels[start]) < Math.Max(0.5, 3 * _deviation * Math.Sqrt(index - start)))
                return index;
        }

        return null;
    }

    private SuspectBars CreateLevelChange(int bar, int? back)
    {
        var size = _returns[bar - 1];
        if (back is null && bar == _sessions.Length - 1)
            return CreateBarSuspect(bar, "close", size);
        if (back is null && bar == 1)
            return CreateBarSuspect(0, "close", -size);
        if (back is null && _gaps[bar - 1] >= LongGap)
            return CreateCompanySuspect(bar);
        var kind = SuspectBars.IsNear(size, SuspectBars.Powers) ? SuspectKind.Unit : SuspectBars.IsNear(size, SuspectBars.Splits) ? SuspectKind.Split : SuspectKind.Level;
        return CreateSuspect(kind, bar, "close", size, back is { } end ? [_sessions[bar], _sessions[end]] : [_sessions[bar]]);
    }

    private SuspectBars CreateCompanySuspect(int bar) => CreateSuspect(SuspectKind.Company, bar, "close", _returns[bar - 1], [_sessions[bar]]);

    /// <summary>Suspects by a high and a low that are too far apart.</summary>
    private IEnumerable<SuspectBars> FindRanges()
    {
        double[] ranges = [.. _high.Zip(_low, (high, low) => Math.Log(high / low))];
        var (center, deviation) = ComputeRobustScale(ranges);
        for (var bar = 0; bar < ranges.Length; bar++)
        {
            if (!(ranges[bar] - center > Math.Max(LargestMove, Deviations * deviation)))
                continue;
            // raw prices: an adjustment that lacks the error would move the correct ones
            var near = Math.Log(_raw["close"][bar > 0 ? bar - 1 : 1]);
            var (above, below) = (Math.Log(_raw["high"][bar]) - near, Math.Log(_raw["low"][bar]) - near);
            yield return above > -below ? CreateBarSuspect(bar, "high", above) : CreateBarSuspect(bar, "low", below);
        }
    }

    /// <summary>All days whose volume is off, as one suspect: those far above the median, and the last ones far below it.</summary>
    private IEnumerable<SuspectBars> FindVolumes()
    {
        var volume = _raw["volume"];
        int[] traded = [.. Enumerable.Range(0, volume.Length).Where(index => volume[index] > 0)];
        var levels = Array.ConvertAll(traded, index => Math.Log(volume[index]));
        var (center, deviation) = ComputeRobustScale(levels);
        var limit = Math.Max(LargestVolumeMove, Deviations * deviation);
        var lowFrom = levels.Length;
        while (lowFrom > 0 && levels[lowFrom - 1] < center - limit)
            lowFrom--;
        int[] wrong = [.. Enumerable.Range(0, levels.Length).Where(index => levels[index] > center + limit || index >= lowFrom)];
        if (wrong.Length == 0)
            yield break;
        var (size, value) = (levels[wrong[0]] - center, volume[traded[wrong[0]]]);
        yield return new SuspectBars
        {
            Kind = SuspectKind.Volume,
            Symbol = _symbol,
            Sessions = Array.ConvertAll(wrong, index => _sessions[traded[index]]),
            Field = "volume",
            Value = value,
            Low = ComputeBoundedExp(Math.Log(value) - size - limit),
            High = ComputeBoundedExp(Math.Log(value) - size + limit),
            Factor = ComputeBoundedExp(size),
        };
    }

    /// <summary>Whether the close of a bar is near the close before it, or for the first bar, the one after it.</summary>
    private bool IsAdjustment(int bar)
    {
        var close = _raw["close"];
        var move = Math.Log(close[bar]) - Math.Log(close[bar > 0 ? bar - 1 : 1]);
        return Math.Abs(move - _center) <= Math.Max(UnusualMove, Deviations * _deviation);
    }

    private SuspectBars CreateBarSuspect(int bar, string field, double size) => CreateSuspect(SuspectKind.Bar, bar, field, size, [_sessions[bar]]);

    private SuspectBars CreateSuspect(SuspectKind kind, int bar, string field, double size, int[] sessions)
    {
        var value = _raw[field][bar];
        var (expected, width) = (Math.Log(value) - size, Deviations * _deviation);
        return new SuspectBars
        {
            Kind = kind,
            Symbol = _symbol,
            Sessions = sessions,
            Field = field,
            Value = value,
            Low = ComputeBoundedExp(expected - width),
            High = ComputeBoundedExp(expected + width),
            Factor = ComputeBoundedExp(size),
            Gap = bar > 0 ? _gaps[bar - 1] : 0,
            IsLast = bar == _sessions.Length - 1,
            IsAdjustment = field == "close" && IsAdjustment(bar),
        };
    }

    /// <summary>Median of values, and the standard deviation that their median absolute deviation gives.</summary>
    private static (double Center, double Deviation) ComputeRobustScale(double[] values)
    {
        if (values.Length == 0)
            return (0, DeviationOfFew);
        var center = ComputeMedian(values);
        var deviation = MadToDeviation * ComputeMedian(Array.ConvertAll(values, value => Math.Abs(value - center)));
        return (center, Math.Max(deviation, values.Length >= FewReturns ? LeastDeviation : DeviationOfFew));
    }

    private static double ComputeMedian(double[] values)
    {
        double[] sorted = [.. values.Order()];
        var middle = sorted.Length / 2;
        return sorted.Length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    }

    private static double ComputeBoundedExp(double value) => Math.Exp(Math.Clamp(value, -LargestLog, LargestLog));

    /// <summary>Weekdays from one day to another, without the other.</summary>
    private static int CountWeekdays(int from, int to)
    {
        var (first, days) = (Day.ToDate(from), Day.ToDate(to).DayNumber - Day.ToDate(from).DayNumber);
        var (weeks, rest) = Math.DivRem(days, 7);
        return (weeks * 5) + Enumerable.Range(0, rest).Count(offset => first.AddDays(offset).DayOfWeek is not (DayOfWeek.Saturday or DayOfWeek.Sunday));
    }
}
