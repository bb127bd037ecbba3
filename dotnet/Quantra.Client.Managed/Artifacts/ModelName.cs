using System.Buffers;

namespace Quantra.Client.Managed;

/// <summary>Names of models and of an ensemble's members.</summary>
internal static class ModelName
{
    private const int Longest = 64;

    private static readonly SearchValues<char> Allowed = SearchValues.Create("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

    /// <summary>Whether a text has 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or a digit.</summary>
    public static bool IsValid(string text) =>
        text.Length is >= 1 and <= Longest && char.IsAsciiLetterOrDigit(text[0]) && !text.AsSpan().ContainsAnyExcept(Allowed);
}
