using System.Globalization;
using Microsoft.Extensions.Configuration;

namespace Quantra.Client.Hosting.Configuration;

/// <summary>Reads values of a configuration, the same in every culture.</summary>
internal static class SettingValue
{
    /// <summary>The text of a value.</summary>
    /// <exception cref="FormatException">There is none, but a section.</exception>
    public static string Text(IConfigurationSection from) => from.Value ?? throw new FormatException("it has no value");

    /// <summary>A whole number.</summary>
    /// <exception cref="FormatException">It is none.</exception>
    public static int Whole(IConfigurationSection from) =>
        int.TryParse(Text(from), NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var number)
            ? number
            : throw new FormatException($"'{from.Value}' is no whole number");

    /// <summary>A time. A number alone is refused: .NET takes it for days.</summary>
    /// <exception cref="FormatException">It is none.</exception>
    public static TimeSpan Time(IConfigurationSection from) =>
        Text(from).Contains(':', StringComparison.Ordinal) && TimeSpan.TryParse(from.Value, CultureInfo.InvariantCulture, out var time)
            ? time
            : throw new FormatException($"'{from.Value}' is no time; write it as 00:00:30");

    /// <summary>Yes or no.</summary>
    /// <exception cref="FormatException">It is neither.</exception>
    public static bool Flag(IConfigurationSection from) =>
        bool.TryParse(Text(from), out var flag) ? flag : throw new FormatException($"'{from.Value}' is neither true nor false");

    /// <summary>An address.</summary>
    /// <exception cref="FormatException">It is none.</exception>
    public static Uri Address(IConfigurationSection from) =>
        Uri.TryCreate(Text(from), UriKind.Absolute, out var address)
            ? address
            : throw new FormatException($"'{from.Value}' is no address; write it as http://127.0.0.1:50051");

    /// <summary>The texts of a list.</summary>
    /// <exception cref="FormatException">One has no value.</exception>
    public static IEnumerable<string> Texts(IConfigurationSection from) => from.GetChildren().Select(Text);

    /// <summary>Texts by name.</summary>
    /// <exception cref="FormatException">One has no value.</exception>
    public static IEnumerable<KeyValuePair<string, string>> TextsByName(IConfigurationSection from) =>
        from.GetChildren().Select(one => KeyValuePair.Create(one.Key, Text(one)));
}
