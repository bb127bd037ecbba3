using System.Globalization;

namespace Quantra.Client;

/// <summary>Finds a range of sessions.</summary>
internal static class SessionRange
{
    /// <summary>Returns the sessions between two days, both included.</summary>
    /// <exception cref="QuantraException">BARS_INVALID: the range is empty.</exception>
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
                $"no session between {first:yyyy-MM-dd} and {last:yyyy-MM-dd}; the panel has {MessageFormat.Days(sessions)}")).ToException();
    }
}
