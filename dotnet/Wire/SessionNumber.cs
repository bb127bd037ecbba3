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
        try
        {
            return new(session / 10_000, session / 100 % 100, session % 100);
        }
        catch (ArgumentOutOfRangeException error)
        {
            var message = FormattableString.Invariant($"the answer has the day {session}, which is none; use the same version of client and server");
            throw new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message).ToException(error);
        }
    }

    /// <summary>The day of a number, or null of 0.</summary>
    public static DateOnly? ToDateOrNull(int session) => session == 0 ? null : ToDate(session);
}
