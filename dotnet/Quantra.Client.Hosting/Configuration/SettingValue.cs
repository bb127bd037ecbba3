using System.Globalization;
using Microsoft.Extensions.Configuration;

namespace Quantra.Client.Hosting.Configuration;

/// <summary>Parses configuration values, the same in every culture.</summary>
internal static class SettingValue
{
    /// <exception cref="FormatException">The setting is a section instead of a value.</exception>
    public static string Text(IConfigurationSection setting) => setting.Value ?? throw new FormatException("it has no value");

    /// <exception cref="FormatException">The value is not an integer.</exception>
    public static int Integer(IConfigurationSection setting) =>
        int.TryParse(Text(setting), NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var number)
            ? number
            : throw new FormatException($"'{setting.Value}' is not an integer");

    /// <summary>Parses a time. A single number is rejected because .NET reads it as days.</summary>
    /// <exception cref="FormatException">The value is not a time.</exception>
    public static TimeSpan Time(IConfigurationSection setting) =>
        Text(setting).Contains(':', StringComparison.Ordinal) && TimeSpan.TryParse(setting.Value, CultureInfo.InvariantCulture, out var time)
            ? time
            : throw new FormatException($"'{setting.Value}' is not a time; write it as 00:00:30");

    /// <exception cref="FormatException">The value is neither true nor false.</exception>
    public static bool Flag(IConfigurationSection setting) =>
        bool.TryParse(Text(setting), out var flag) ? flag : throw new FormatException($"'{setting.Value}' is neither true nor false");

    /// <exception cref="FormatException">The value is not an absolute address.</exception>
    public static Uri Address(IConfigurationSection setting) =>
        Uri.TryCreate(Text(setting), UriKind.Absolute, out var address)
            ? address
            : throw new FormatException($"'{setting.Value}' is not an address; write it as http://127.0.0.1:50051");

    /// <exception cref="FormatException">An element has no value.</exception>
    public static IEnumerable<string> Texts(IConfigurationSection setting) => setting.GetChildren().Select(Text);

    /// <exception cref="FormatException">An element has no value.</exception>
    public static IEnumerable<KeyValuePair<string, string>> ReadTextsByName(IConfigurationSection setting) =>
        setting.GetChildren().Select(child => KeyValuePair.Create(child.Key, Text(child)));
}
