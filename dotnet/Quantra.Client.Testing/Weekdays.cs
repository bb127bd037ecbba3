namespace Quantra.Client.Testing;

/// <summary>Mondays to Fridays, the sessions of an exchange without holidays.</summary>
internal static class Weekdays
{
    /// <summary>Returns the weekday a number of weekdays after a day.</summary>
    public static DateOnly After(DateOnly day, int count)
    {
        for (var left = count; left > 0; left -= IsWeekday(day) ? 1 : 0)
            day = day.AddDays(1);
        return day;
    }

    /// <summary>Returns a number of weekdays up to a day, oldest first.</summary>
    public static IReadOnlyList<DateOnly> UpTo(DateOnly day, int count) =>
        [.. Enumerable.Range(0, int.MaxValue).Select(back => day.AddDays(-back)).Where(IsWeekday).Take(count).Reverse()];

    private static bool IsWeekday(DateOnly day) => day.DayOfWeek is not (DayOfWeek.Saturday or DayOfWeek.Sunday);
}
