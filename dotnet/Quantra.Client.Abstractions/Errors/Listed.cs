using System.Globalization;

namespace Quantra.Client;

/// <summary>Lists of names, numbers and days in texts.</summary>
internal static class Listed
{
    private const int Most = 5;

    /// <summary>The first few names, and how many more there are.</summary>
    public static string First(IReadOnlyList<string> names) =>
        string.Join(", ", names.Take(Most)) + (names.Count > Most ? $" and {names.Count - Most} more" : "");

    /// <summary>The same, or "no symbol".</summary>
    public static string Symbols(IReadOnlyList<string> symbols) => symbols.Count == 0 ? "no symbol" : First(symbols);

    /// <summary>All numbers, as in English.</summary>
    public static string Numbers<T>(IEnumerable<T> numbers)
        where T : IFormattable => string.Join(", ", numbers.Select(number => number.ToString(null, CultureInfo.InvariantCulture)));

    /// <summary>"1 session", "2 sessions".</summary>
    public static string Count(int count, string noun) => FormattableString.Invariant($"{count} {noun}{(count == 1 ? "" : "s")}");

    /// <summary>" as of 2013-03-01", or nothing if the day is unknown.</summary>
    public static string AsOf(DateOnly? day) =>
        day is { } known ? string.Create(CultureInfo.InvariantCulture, $" as of {known:yyyy-MM-dd}") : "";

    /// <summary>How many sessions, and the first and the last.</summary>
    public static string Days(ReadOnlySpan<DateOnly> sessions)
    {
        var count = Count(sessions.Length, "session");
        return sessions.IsEmpty
            ? count
            : string.Create(CultureInfo.InvariantCulture, $"{count}, {sessions[0]:yyyy-MM-dd} to {sessions[^1]:yyyy-MM-dd}");
    }
}
