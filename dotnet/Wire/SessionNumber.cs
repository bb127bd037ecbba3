using Google.Protobuf.Collections;

namespace Quantra.Client.Wire;

/// <summary>A trading day as the number yyyymmdd; 0 = unknown.</summary>
internal static class SessionNumber
{
    /// <summary>The number of a day.</summary>
    public static int Of(DateOnly day) => (day.Year * 10_000) + (day.Month * 100) + day.Day;

    /// <summary>Adds the numbers of days to a message.</summary>
    public static void AddTo(RepeatedField<int> numbers, ReadOnlySpan<DateOnly> days)
    {
        numbers.Capacity = days.Length;
        foreach (var day in days)
            numbers.Add(Of(day));
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
