using System.Globalization;
using Quantra.Client;

namespace Quantra.Desktop.Charts;

/// <summary>The largest contributions to one number of a forecast, as bars to the left and right of zero.</summary>
public sealed class ImportanceChart : IChart
{
    private const int Shown = 12;
    private const double NameWidth = 170;
    private const double NumberWidth = 84;
    private const double BarShare = 0.7;

    private readonly IReadOnlyList<(string Name, double Value)> _rows;

    private ImportanceChart(IReadOnlyList<(string Name, double Value)> rows) => _rows = rows;

    /// <summary>Creates the chart for a symbol.</summary>
    /// <param name="attribution">An attribution that includes the symbol.</param>
    /// <param name="symbol">The symbol.</param>
    public static ImportanceChart Of(Attribution attribution, string symbol)
    {
        ArgumentNullException.ThrowIfNull(attribution);
        var rows = attribution.Table(symbol);
        List<(string, double)> shown = [.. rows.Take(Shown).Select(row => (row.Name, row.Value))];
        if (rows.Count > Shown)
            shown.Add(($"{rows.Count - Shown} others", rows.Skip(Shown).Sum(row => row.Value)));
        return new ImportanceChart(shown);
    }

    /// <inheritdoc/>
    public IReadOnlyList<Shape> Draw(ChartSize size)
    {
        var largest = _rows.Max(row => Math.Abs(row.Value));
        var middle = (NameWidth + size.Width - NumberWidth) / 2;
        var half = middle - NameWidth;
        var height = size.Height / _rows.Count;
        var bars = _rows.SelectMany((row, index) => Bar(row.Name, row.Value, (index + 0.5) * height));
        return [.. bars, new Stroke([new(middle, 0), new(middle, size.Height)], Ink.Quiet)];

        IEnumerable<Shape> Bar(string name, double value, double y)
        {
            var (ink, end) = (value < 0 ? Ink.Down : Ink.Up, middle + (largest > 0 ? value / largest * half : 0));
            var (top, bottom) = (y - (height * BarShare / 2), y + (height * BarShare / 2));
            yield return new Caption(new(NameWidth - 8, y), name, Ink.Text, Anchor.End);
            yield return new Area([new(middle, top), new(end, top), new(end, bottom), new(middle, bottom)], ink);
            yield return new Caption(new(size.Width, y), Number(value), ink, Anchor.End);
        }
    }

    private static string Number(double value) => value.ToString("+0.00000;-0.00000;0", CultureInfo.InvariantCulture);
}
