namespace Quantra.Client;

/// <summary>Lists of names in messages.</summary>
internal static class Listed
{
    private const int Most = 5;

    /// <summary>The first few names, and how many more there are.</summary>
    public static string First(IReadOnlyList<string> names) =>
        string.Join(", ", names.Take(Most)) + (names.Count > Most ? $" and {names.Count - Most} more" : "");
}
