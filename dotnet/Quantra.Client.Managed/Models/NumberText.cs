using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Formats numbers for messages as Python does, so that every predictor sends the same text.</summary>
internal static class NumberText
{
    /// <summary>Up to <paramref name="digits"/> significant digits without trailing zeros, as C's %g.</summary>
    public static string General(double value, int digits = 6)
    {
        if (!double.IsFinite(value) || value == 0)
            return FormatSpecial(value, "0");
        var parts = value.ToString(string.Create(CultureInfo.InvariantCulture, $"e{digits - 1}"), CultureInfo.InvariantCulture).Split('e');
        var exponent = int.Parse(parts[1], CultureInfo.InvariantCulture);
        if (exponent < -4 || exponent >= digits)
            return AppendExponent(TrimZeros(parts[0]), exponent);
        return TrimZeros(value.ToString(string.Create(CultureInfo.InvariantCulture, $"F{Math.Max(0, digits - 1 - exponent)}"), CultureInfo.InvariantCulture));
    }

    /// <summary>The shortest text that parses to the same number, such as 12.0 or 1e-05.</summary>
    public static string Exact(double value)
    {
        if (!double.IsFinite(value) || value == 0)
            return FormatSpecial(value, "0.0");
        var shortest = value.ToString("R", CultureInfo.InvariantCulture);
        var exponent = ReadExponent(shortest.TrimStart('-'));
        if (exponent is >= -4 and < 16)
        {
            var plain = shortest.Contains('E', StringComparison.Ordinal) ? decimal.Parse(shortest, NumberStyles.Float, CultureInfo.InvariantCulture).ToString(CultureInfo.InvariantCulture) : shortest;
            return plain.Contains('.', StringComparison.Ordinal) ? plain : plain + ".0";
        }

        var digits = shortest.Split('E')[0].Replace(".", "", StringComparison.Ordinal).Trim('-').Trim('0');
        var mantissa = digits.Length > 1 ? $"{digits[0]}.{digits[1..]}" : digits;
        return AppendExponent((value < 0 ? "-" : "") + mantissa, exponent);
    }

    /// <summary>The power of ten of the first digit that is not 0.</summary>
    private static int ReadExponent(string shortest)
    {
        var end = shortest.IndexOf('E', StringComparison.Ordinal);
        if (end >= 0)
            return int.Parse(shortest[(end + 1)..], CultureInfo.InvariantCulture);
        var point = shortest.IndexOf('.', StringComparison.Ordinal);
        var first = shortest.AsSpan().IndexOfAnyExcept('0', '.');
        return first < point || point < 0 ? (point < 0 ? shortest.Length : point) - 1 - first : point - first;
    }

    private static string FormatSpecial(double value, string zero)
    {
        if (value == 0)
            return double.IsNegative(value) ? "-" + zero : zero;
        return double.IsNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }

    private static string AppendExponent(string mantissa, int exponent) =>
        string.Create(CultureInfo.InvariantCulture, $"{mantissa}e{(exponent < 0 ? '-' : '+')}{Math.Abs(exponent):00}");

    private static string TrimZeros(string text) => text.Contains('.', StringComparison.Ordinal) ? text.TrimEnd('0').TrimEnd('.') : text;
}
