using System.Globalization;

namespace Quantra.Client;

/// <summary>Finds sessions among others.</summary>
internal static class SessionRange
{
    /// <summary>Which of the sessions lie between two days, both included.</summary>
    /// <param name="sessions">[T] days, oldest first.</param>
    /// <param name="first">The first day.</param>
    /// <param name="last">The last day.</param>
    /// <exception cref="QuantraException">BARS_INVALID: none.</exception>
    public static Range Between(ReadOnlySpan<DateOnly> sessions, DateOnly first, DateOnly last)
    {
        var begin = 0;
        while (begin < sessions.Length && sessions[begin] < first)
            begin++;
        var end = begin;
        while (end < sessions.Length && sessions[end] <= last)
            end++;
        return begin < end
            ? begin..end
            : throw QuantraError.BadBars(string.Create(
                CultureInfo.InvariantCulture,
                $"no session lies between {first:yyyy-MM-dd} and {last:yyyy-MM-dd}; there are {Listed.Days(sessions)}")).ToException();
    }
}
