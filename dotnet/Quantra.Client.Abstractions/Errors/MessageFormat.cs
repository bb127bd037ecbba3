using System.Globalization;

namespace Quantra.Client;

/// <summary>Formats lists of names, numbers and days for messages.</summary>
internal static class MessageFormat
{
    private const int Most = 5;

    /// <summary>Lists the first few names and the number of the others.</summary>
    public static string First(IReadOnlyList<string> names) =>
        string.Join(", ", names.Take(Most)) + (names.Count > Most ? $" and {names.Count - Most} more" : "");

    /// <summary>Lists symbols, or returns "no symbol".</summary>
    public static string Symbols(IReadOnlyList<string> symbols) => symbols.Count == 0 ? "no symbol" : First(symbols);

    /// <summary>Lists all numbers in English.</summary>
    public static string Numbers<T>(IEnumerable<T> numbers)
        where T : IFormattable => string.Join(", ", numbers.Select(number => number.ToString(null, CultureInfo.InvariantCulture)));

    /// <summary>For example "1 session" or "2 sessions".</summary>
    public static string Count(int count, string noun) => FormattableString.Invariant($"{count} {noun}{(count == 1 ? "" : "s")}");

    /// <summary>For example " as of 2013-03-01"; empty if the day is unknown.</summary>
    public static string AsOf(DateOnly? day) =>
        day is { } known ? string.Create(CultureInfo.InvariantCulture, $" as of {known:yyyy-MM-dd}") : "";

    /// <summary>The number of sessions, the first and the last.</summary>
    public static string Days(ReadOnlySpan<DateOnly> sessions)
    {
        var count = Count(sessions.Length, "session");
        return sessions.IsEmpty
            ? count
            : string.Create(CultureInfo.InvariantCulture, $"{count}, {sessions[0]:yyyy-MM-dd} to {sessions[^1]:yyyy-MM-dd}");
    }
}
