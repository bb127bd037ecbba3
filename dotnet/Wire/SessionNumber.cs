using Google.Protobuf.Collections;

namespace Quantra.Client.Wire;

/// <summary>Trading days as numbers of the form yyyymmdd; 0 = unknown.</summary>
internal static class SessionNumber
{
    public static int Of(DateOnly day) => (day.Year * 10_000) + (day.Month * 100) + day.Day;

    public static int OfOrZero(DateOnly? day) => day is { } known ? Of(known) : 0;

    public static void AddTo(RepeatedField<int> numbers, ReadOnlySpan<DateOnly> days)
    {
        numbers.Capacity = days.Length;
        foreach (var day in days)
            numbers.Add(Of(day));
    }

    /// <exception cref="QuantraException">INTERNAL: the number is not a date.</exception>
    public static DateOnly ToDate(int session)
    {
        var (year, month, day) = (session / 10_000, session / 100 % 100, session % 100);
        return year is >= 1 and <= 9999 && month is >= 1 and <= 12 && day >= 1 && day <= DateTime.DaysInMonth(year, month)
            ? new DateOnly(year, month, day)
            : throw InvalidResponse.Create($"{session} is not a date");
    }

    public static DateOnly? ToDateOrNull(int session) => session == 0 ? null : ToDate(session);
}
