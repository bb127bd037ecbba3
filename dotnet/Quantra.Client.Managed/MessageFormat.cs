namespace Quantra.Client.Managed;

/// <summary>Formats numbers for messages.</summary>
internal static class MessageFormat
{
    /// <summary>Such as "1 symbol" or "2 symbols".</summary>
    public static string Count(int count, string noun) => FormattableString.Invariant($"{count} {noun}{(count == 1 ? "" : "s")}");
}
