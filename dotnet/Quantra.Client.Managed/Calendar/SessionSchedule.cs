namespace Quantra.Client.Managed;

/// <summary>The time at which trading ends: only on a date, or from a date on.</summary>
/// <param name="Date">yyyymmdd.</param>
/// <param name="Time">"HH:MM" in the exchange's time zone; "24:00" is midnight at the end of the date.</param>
internal readonly record struct CloseTime(int Date, string Time);

/// <summary>An exchange's sessions between two dates: Monday to Friday, or every day, without its holidays.</summary>
internal sealed class SessionSchedule
{
    /// <summary>Name of the calendar of an unknown exchange.</summary>
    public const string Weekdays = "weekdays";

    /// <summary>Close of a session that ends with its date.</summary>
    public const string Midnight = "24:00";

    private const string EveryDay = "24/7";
    private const int NewestVersion = 2;

    /// <summary>The exchange's code, "24/7", or "weekdays" for an unknown exchange.</summary>
    public required string Name { get; init; }

    /// <summary>Time zone of dates and close times.</summary>
    public required TimeZoneInfo TimeZone { get; init; }

    /// <summary>First date covered, yyyymmdd.</summary>
    public required int First { get; init; }

    /// <summary>Last date covered, yyyymmdd.</summary>
    public required int Last { get; init; }

    /// <summary>Whether Saturdays and Sundays are sessions too.</summary>
    public required bool IsEveryDay { get; init; }

    /// <summary>Days that would be sessions otherwise, ascending.</summary>
    public required int[] Holidays { get; init; }

    /// <summary>Holidays that were not known in advance, ascending.</summary>
    public required int[] Unannounced { get; init; }

    /// <summary>The regular close from a date on, ascending; empty = unknown.</summary>
    public required CloseTime[] RegularCloses { get; init; }

    /// <summary>Sessions with another close, ascending.</summary>
    public required CloseTime[] SpecialCloses { get; init; }

    /// <summary>Sessions and holidays, ascending.</summary>
    public int[] Days()
    {
        var days = new List<int>();
        for (var (date, last) = (Day.ToDate(First), Day.ToDate(Last)); date <= last; date = date.AddDays(1))
        {
            if (IsEveryDay || date.DayOfWeek is not (DayOfWeek.Saturday or DayOfWeek.Sunday))
                days.Add(Day.Of(date));
        }

        return [.. days];
    }

    /// <summary>Reads calendar.json.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: the version is newer, or a key is missing, unknown or invalid.</exception>
    public static SessionSchedule Read(JsonRecord record)
    {
        var version = ReadVersion(record);
        var (first, last) = (ReadDate(record, "first"), ReadDate(record, "last"));
        if (first > last)
            throw record.Refusal("last", $"is {last}, before first, {first}");
        var schedule = new SessionSchedule
        {
            Name = ReadName(record),
            TimeZone = ReadTimeZone(record),
            First = first,
            Last = last,
            IsEveryDay = version > 1 && record.Flag("is_every_day"),
            Holidays = ReadDates(record, "holidays"),
            Unannounced = ReadDates(record, "unannounced"),
            RegularCloses = ReadCloses(record, "regular_closes", version),
            SpecialCloses = ReadCloses(record, "special_closes", version),
        };
        record.End();
        schedule.Check(record);
        return schedule;
    }

    private static int ReadVersion(JsonRecord record)
    {
        if (!record.Has("version"))
            return 1;
        var version = record.Integer("version");
        if (version > NewestVersion)
            throw record.Refusal("version", $"is {version}, this program reads up to {NewestVersion}; update the package, or train the model again");
        return version >= 2 ? version : throw record.Refusal("version", $"is {version}, but must be at least 2");
    }

    private static string ReadName(JsonRecord record) =>
        record.Text("name") is { Length: > 0 } name ? name : throw record.Refusal("name", "is empty");

    private static TimeZoneInfo ReadTimeZone(JsonRecord record)
    {
        var name = record.Text("time_zone");
        return TimeZoneInfo.TryFindSystemTimeZoneById(name, out var zone)
            ? zone
            : throw record.Refusal("time_zone", $"is '{name}', which this machine does not know; install its time zone database");
    }

    private static int ReadDate(JsonRecord record, string key) => CheckDate(record, key, record.Integer(key));

    private static int[] ReadDates(JsonRecord record, string key)
    {
        var days = record.Integers(key);
        for (var index = 0; index < days.Length; index++)
            CheckDate(record, FormattableString.Invariant($"{key}[{index}]"), days[index]);
        CheckAscending(record, key, days);
        return days;
    }

    private static CloseTime[] ReadCloses(JsonRecord record, string key, int version)
    {
        var closes = Array.ConvertAll(record.Records(key), item => ReadClose(item, version));
        CheckAscending(record, key, Array.ConvertAll(closes, close => close.Date));
        return closes;
    }

    private static CloseTime ReadClose(JsonRecord record, int version)
    {
        var close = new CloseTime(ReadDate(record, "date"), record.Text("time"));
        if (!IsTimeOfDay(close.Time) && !(version >= 2 && close.Time == Midnight))
            throw record.Refusal("time", $"is '{close.Time}', which is not a time of day (HH:MM)");
        record.End();
        return close;
    }

    private static int CheckDate(JsonRecord record, string key, int day) =>
        Day.Exists(day) ? day : throw record.Refusal(key, $"is {day}, which is not a date (yyyymmdd)");

    private static void CheckAscending(JsonRecord record, string key, int[] days)
    {
        for (var index = 1; index < days.Length; index++)
        {
            if (days[index] <= days[index - 1])
                throw record.Refusal(FormattableString.Invariant($"{key}[{index}]"), $"is {days[index]} and follows {days[index - 1]}, but dates must ascend");
        }
    }

    private void Check(JsonRecord record)
    {
        if (IsEveryDay != (Name == EveryDay))
            throw record.Refusal("name", $"is '{Name}', but exactly '{EveryDay}' has every day of the week");
        var days = Days().ToHashSet();
        CheckAmong(record, "holidays", Holidays, days, $"not a {(IsEveryDay ? "day" : "weekday")} between first and last");
        CheckAmong(record, "unannounced", Unannounced, [.. Holidays], "not among the holidays");
        days.ExceptWith(Holidays);
        if (days.Count == 0)
            throw record.Refusal("holidays", "leave no session");
        CheckAmong(record, "special_closes", Array.ConvertAll(SpecialCloses, close => close.Date), days, "not a session");
        if (RegularCloses.Length > 0 && RegularCloses[0].Date != First)
            throw record.Refusal("regular_closes", $"begin on {RegularCloses[0].Date}, but must begin on first, {First}");
        if (SpecialCloses.Length > 0 && RegularCloses.Length == 0)
            throw record.Refusal("special_closes", "are given without regular_closes");
    }

    private static void CheckAmong(JsonRecord record, string key, int[] days, HashSet<int> allowed, string problem)
    {
        for (var index = 0; index < days.Length; index++)
        {
            if (!allowed.Contains(days[index]))
                throw record.Refusal(FormattableString.Invariant($"{key}[{index}]"), $"is {days[index]}, which is {problem}");
        }
    }

    private static bool IsTimeOfDay(string text) =>
        text is [>= '0' and <= '2', >= '0' and <= '9', ':', >= '0' and <= '5', >= '0' and <= '9'] && (text[0] < '2' || text[1] < '4');
}
