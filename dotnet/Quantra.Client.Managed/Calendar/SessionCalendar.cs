using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>The sessions of a schedule, their close times, and the calendar fields that features read.</summary>
internal sealed class SessionCalendar
{
    /// <summary>Names of the calendar fields, in order.</summary>
    public static readonly string[] FieldNames =
        ["weekday", "sessions_to_month_end", "sessions_from_month_start", "days_to_holiday", "days_from_holiday"];

    /// <summary>Upper bound of the distances to holidays, in calendar days.</summary>
    private const int HolidayReach = 30;

    /// <summary>Most of the last sessions up to today that may still be open, in any time zone.</summary>
    private const int MostOpen = 3;

    private const string Renewal = "train the model again (quantra train stock) to renew its calendar";

    private readonly SessionSchedule _schedule;
    private readonly int[] _sessions;
    private readonly double[][] _fields;
    private readonly Dictionary<int, string> _specialCloses;

    public SessionCalendar(SessionSchedule schedule)
    {
        _schedule = schedule;
        var closed = schedule.Holidays.ToHashSet();
        _sessions = Array.FindAll(schedule.Days(), day => !closed.Contains(day));
        _fields = Fields();
        _specialCloses = schedule.SpecialCloses.ToDictionary(close => close.Date, close => close.Time);
    }

    /// <summary>The exchange's code, "24/7", or "weekdays" for an unknown exchange.</summary>
    public string Name => _schedule.Name;

    /// <summary>First date covered, yyyymmdd.</summary>
    public int First => _schedule.First;

    /// <summary>Last date covered, yyyymmdd.</summary>
    public int Last => _schedule.Last;

    /// <summary>Whether the market's sessions are known; "weekdays" is only an approximation.</summary>
    public bool IsExchange => Name != SessionSchedule.Weekdays;

    /// <summary>Whether the exchange trades on this date.</summary>
    public bool IsSession(int day)
    {
        CheckCovered(day, day);
        return Array.BinarySearch(_sessions, day) >= 0;
    }

    /// <summary>The sessions after a date, which may be any day.</summary>
    public ReadOnlyMemory<int> Following(int day, int count)
    {
        CheckCovered(day, day);
        var start = IndexAfter(day);
        if (_sessions.Length - start >= count)
            return _sessions.AsMemory(start, count);
        throw PredictionError.CalendarEnded(
            $"only {_sessions.Length - start} of the {count} sessions after {Day.Show(day)} are known: the calendar {Name} ends on {Day.Show(Last)}; {Renewal}",
            ("calendar", Name),
            ("date", Day.Show(day)),
            ("last", Day.Show(Last))).ToException();
    }

    /// <summary>The sessions before a date, oldest first; null if the calendar does not cover them.</summary>
    public int[]? FindPrecedingOrNull(int day, int count)
    {
        if (day < First || day > Last)
            return null;
        var stop = IndexFrom(day);
        return stop < count ? null : _sessions[(stop - count)..stop];
    }

    /// <summary>Whether another calendar has the same sessions on the days that both cover, and there are such days.</summary>
    public bool Agrees(SessionCalendar other)
    {
        var (first, last) = (Math.Max(First, other.First), Math.Min(Last, other.Last));
        return first <= last && Between(first, last).SequenceEqual(other.Between(first, last));
    }

    /// <summary>Whether these dates are consecutive sessions.</summary>
    public bool IsGapless(ReadOnlySpan<int> days)
    {
        var start = days.IsEmpty ? 0 : IndexFrom(days[0]);
        return _sessions.Length - start >= days.Length && days.SequenceEqual(_sessions.AsSpan(start, days.Length));
    }

    /// <summary>The sessions between the first and the last of ascending dates that are not among them.</summary>
    public int[] Missing(ReadOnlySpan<int> days)
    {
        CheckCovered(days[0], days[^1]);
        var present = new HashSet<int>(days.ToArray());
        return [.. _sessions[IndexFrom(days[0])..IndexAfter(days[^1])].Where(day => !present.Contains(day))];
    }

    /// <summary>Those of ascending dates that are not sessions.</summary>
    public int[] Unexpected(ReadOnlySpan<int> days)
    {
        CheckCovered(days[0], days[^1]);
        return [.. days.ToArray().Where(day => Array.BinarySearch(_sessions, day) < 0)];
    }

    /// <summary>Advice for bars on dates that are not sessions.</summary>
    public string Remedy(IEnumerable<int> days) => days.Any(Day.IsWeekend) && !_schedule.IsEveryDay
        ? "remove these bars, or, for what trades on every day of the week, train with --calendar 24/7"
        : "remove these bars (quantra check --fix drops copies of the day before), or train with the calendar of their exchange";

    /// <summary>Whether a session has closed, so that its daily bar is final. Without close times, a session closes at the end of its date in UTC.</summary>
    public bool IsComplete(int session, DateTimeOffset now)
    {
        CheckSession(session);
        if (_schedule.RegularCloses.Length == 0)
            return Day.Of(DateOnly.FromDateTime(now.UtcDateTime)) > session;
        var clock = _schedule.RegularCloses[0].Time;
        foreach (var regular in _schedule.RegularCloses)
            clock = regular.Date <= session ? regular.Time : clock;
        clock = _specialCloses.GetValueOrDefault(session, clock);
        var date = Day.ToDate(session);
        var local = clock == SessionSchedule.Midnight
            ? date.AddDays(1).ToDateTime(TimeOnly.MinValue)
            : date.ToDateTime(TimeOnly.ParseExact(clock, "HH:mm", CultureInfo.InvariantCulture));
        return now.UtcDateTime >= TimeZoneInfo.ConvertTimeToUtc(local, _schedule.TimeZone);
    }

    /// <summary>Number of later sessions that have closed.</summary>
    public int CountClosedSince(int session, DateTimeOffset now)
    {
        var today = Math.Max(session, Day.Of(DateOnly.FromDateTime(now.UtcDateTime)));
        CheckCovered(session, today);
        var later = _sessions[IndexAfter(session)..IndexAfter(today)];
        var open = later[Math.Max(0, later.Length - MostOpen)..];
        return later.Length - open.Length + open.Count(day => IsComplete(day, now));
    }

    /// <summary>The fields of sessions by name, each as long as <paramref name="sessions"/>.</summary>
    /// <exception cref="QuantraException">A date is not a session, or not covered.</exception>
    public IReadOnlyDictionary<string, double[]> FieldsOf(ReadOnlySpan<int> sessions)
    {
        if (!sessions.IsEmpty)
            CheckCovered(sessions[0], sessions[^1]);
        var rows = new int[sessions.Length];
        for (var index = 0; index < rows.Length; index++)
        {
            CheckSession(sessions[index]);
            rows[index] = IndexFrom(sessions[index]);
        }

        var fields = new Dictionary<string, double[]>(StringComparer.Ordinal);
        for (var field = 0; field < FieldNames.Length; field++)
        {
            var values = _fields[field];
            fields.Add(FieldNames[field], Array.ConvertAll(rows, row => values[row]));
        }

        return fields;
    }

    private void CheckSession(int day)
    {
        if (IsSession(day))
            return;
        throw PredictionError.Bars(
            $"{Day.Show(day)} is not a session of the calendar {Name}: {Remedy([day])}",
            ("calendar", Name),
            ("date", Day.Show(day))).ToException();
    }

    private void CheckCovered(int first, int last)
    {
        var outside = first < First ? first : last;
        if (outside >= First && outside <= Last)
            return;
        throw PredictionError.CalendarEnded(
            $"{Day.Show(outside)} is outside the calendar {Name}, which covers {Day.Show(First)} to {Day.Show(Last)}; {(outside < First ? "send later dates" : Renewal)}",
            ("calendar", Name),
            ("date", Day.Show(outside)),
            ("last", Day.Show(Last))).ToException();
    }

    /// <summary>Index of the first session on or after a date.</summary>
    private int IndexFrom(int day) => Array.BinarySearch(_sessions, day) is >= 0 and var found ? found : ~Array.BinarySearch(_sessions, day);

    /// <summary>Index of the first session after a date.</summary>
    private int IndexAfter(int day) => Array.BinarySearch(_sessions, day) is >= 0 and var found ? found + 1 : ~Array.BinarySearch(_sessions, day);

    private ReadOnlySpan<int> Between(int first, int last) => _sessions.AsSpan(IndexFrom(first)..IndexAfter(last));

    /// <summary>Computes the fields. Those that look ahead treat unannounced closures as ordinary sessions.</summary>
    private double[][] Fields()
    {
        var closed = Array.ConvertAll(_schedule.Holidays, day => Day.ToDate(day).DayNumber);
        var surprises = _schedule.Unannounced.ToHashSet();
        var announced = Array.ConvertAll(Array.FindAll(_schedule.Holidays, day => !surprises.Contains(day)), day => Day.ToDate(day).DayNumber);
        int[] planned = [.. _sessions, .. _schedule.Unannounced];
        Array.Sort(planned);
        var fields = Array.ConvertAll(FieldNames, _ => new double[_sessions.Length]);
        for (var index = 0; index < _sessions.Length; index++)
        {
            var (day, date) = (_sessions[index], Day.ToDate(_sessions[index]));
            var number = date.DayNumber;
            fields[0][index] = ((int)date.DayOfWeek + 6) % 7;
            fields[1][index] = FindFirstAtLeast(planned, (day / 100 * 100) + 100) - FindFirstAtLeast(planned, day + 1);
            fields[2][index] = index - FindFirstAtLeast(_sessions, day / 100 * 100);
            var next = FindFirstAtLeast(announced, number);
            fields[3][index] = next < announced.Length ? Math.Min(announced[next] - number, HolidayReach) : HolidayReach;
            var before = FindFirstAtLeast(closed, number);
            fields[4][index] = before > 0 ? Math.Min(number - closed[before - 1], HolidayReach) : HolidayReach;
        }

        return fields;
    }

    private static int FindFirstAtLeast(int[] values, int value) => Array.BinarySearch(values, value) is >= 0 and var found ? found : ~Array.BinarySearch(values, value);
}
