using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Converts days between integers yyyymmdd and <see cref="DateOnly"/>.</summary>
internal static class Day
{
    /// <summary>Limits of a calendar's dates; they keep a damaged file from allocating a huge table.</summary>
    private const int Earliest = 18000101, Latest = 21991231;

    /// <summary>Whether yyyymmdd is a real date within the limits of a calendar.</summary>
    public static bool Exists(int day)
    {
        var (year, month, ofMonth) = Split(day);
        return day is >= Earliest and <= Latest && month is >= 1 and <= 12 && ofMonth >= 1 && ofMonth <= DateTime.DaysInMonth(year, month);
    }

    public static DateOnly ToDate(int day)
    {
        var (year, month, ofMonth) = Split(day);
        return new DateOnly(year, month, ofMonth);
    }

    public static int Of(DateOnly date) => (((date.Year * 100) + date.Month) * 100) + date.Day;

    /// <summary>For messages, such as 2024-03-28.</summary>
    public static string Show(int day) => string.Create(CultureInfo.InvariantCulture, $"{day / 10000:0000}-{day / 100 % 100:00}-{day % 100:00}");

    /// <summary>Lists up to five dates.</summary>
    public static string ShowAll(ReadOnlySpan<int> days)
    {
        var shown = days.ToArray().Take(5).Select(Show);
        return string.Join(", ", shown) + (days.Length > 5 ? string.Create(CultureInfo.InvariantCulture, $" and {days.Length - 5} more") : "");
    }

    public static bool IsWeekend(int day) => ToDate(day).DayOfWeek is DayOfWeek.Saturday or DayOfWeek.Sunday;

    private static (int Year, int Month, int Day) Split(int day) => (day / 10000, day / 100 % 100, day % 100);
}
