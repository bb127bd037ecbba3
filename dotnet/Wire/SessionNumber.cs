namespace Quantra.Client.Wire;

/// <summary>A trading day as the number yyyymmdd; 0 = unknown.</summary>
internal static class SessionNumber
{
    /// <summary>The number of a day.</summary>
    public static int Of(DateOnly day) => (day.Year * 10_000) + (day.Month * 100) + day.Day;

    /// <summary>The numbers of days.</summary>
    public static int[] Of(ReadOnlySpan<DateOnly> days)
    {
        var numbers = new int[days.Length];
        for (var index = 0; index < days.Length; index++)
            numbers[index] = Of(days[index]);
        return numbers;
    }

    /// <summary>The day of a number.</summary>
    /// <exception cref="QuantraException">INTERNAL: there is no such day.</exception>
    public static DateOnly ToDate(int session)
    {
        var (year, month, day) = (session / 10_000, session / 100 % 100, session % 100);
        return year is >= 1 and <= 9999 && month is >= 1 and <= 12 && day >= 1 && day <= DateTime.DaysInMonth(year, month)
            ? new DateOnly(year, month, day)
            : throw Unreadable.Answer($"there is no day {session}");
    }

    /// <summary>The day of a number, or null of 0.</summary>
    public static DateOnly? ToDateOrNull(int session) => session == 0 ? null : ToDate(session);
}
