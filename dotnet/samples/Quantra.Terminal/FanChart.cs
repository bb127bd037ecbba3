using System.Globalization;
using Quantra.Client;
using Spectre.Console;

namespace Quantra.Terminal;

/// <summary>The last closes and the fan of forecast quantiles.</summary>
/// <param name="past">Closes, oldest first; the fan starts at the last one; NaN = no bar.</param>
/// <param name="horizons">Sessions after the last close.</param>
/// <param name="fan">One line of values per quantile, with one value per horizon.</param>
/// <param name="middle">Index of the median line.</param>
internal sealed class FanChart(
    IReadOnlyList<double> past,
    IReadOnlyList<int> horizons,
    IReadOnlyList<double[]> fan,
    int middle)
{
    private const int AxisWidth = 11;
    private const int LabelEvery = 3;
    private const int PastSessions = 60;

    /// <summary>Creates the chart of a symbol and its legend; empty if the forecast has no prices.</summary>
    public static IEnumerable<Markup> Of(BarSeries bars, Forecast forecast, int width, int height)
    {
        if (forecast.Prices is null)
            return [];
        var past = bars.Last(PastSessions).Close.ToArray();
        var fan = forecast.Quantiles
            .Select(q => forecast.Horizons.Select(h => forecast.Price(bars.Symbol, h, q)).ToArray())
            .ToList();
        var chart = new FanChart(past, forecast.Horizons, fan, (forecast.Quantiles.Count - 1) / 2);
        var legend = $"{new string(' ', AxisWidth)}[{Palette.Past.ToMarkup()}]━ last {past.Length} closes[/]   "
            + $"[{Palette.Median.ToMarkup()}]━ median[/]   [{Palette.Band.ToMarkup()}]▒ {Band(forecast)}[/]";
        return [.. chart.Lines(width, height).Select(line => new Markup(line)), new Markup(legend)];
    }

    /// <summary>Names the outer quantiles, for example "10% to 90%".</summary>
    public static string Band(Forecast forecast) =>
        string.Create(CultureInfo.InvariantCulture, $"{forecast.Quantiles[0]:0.##%} to {forecast.Quantiles[^1]:0.##%}");

    /// <summary>Draws the chart as lines of markup.</summary>
    public IEnumerable<string> Lines(int width, int height)
    {
        var canvas = new Canvas(Math.Max(width - AxisWidth, 10), height);
        Draw(canvas);
        for (var row = 0; row < height; row++)
        {
            var tick = row % LabelEvery == 0 ? "┤" : "│";
            yield return $"[{Palette.Quiet.ToMarkup()}]{Label(row, height),AxisWidth - 2}[/] {tick}{canvas.Row(row)}";
        }
    }

    private double Lowest => Scale.Min();

    private double Highest => Scale.Max();

    private IEnumerable<double> Scale => past.Concat(fan.SelectMany(line => line)).Where(double.IsFinite);

    private int Sessions => past.Count - 1 + horizons[^1];

    private void Draw(Canvas canvas)
    {
        var lines = fan.Select(line => Points(canvas, line)).ToList();
        Fill(canvas, lines[0], lines[^1]);
        for (var line = 0; line < lines.Count; line++)
            Join(canvas, lines[line], line == middle ? Palette.Median : Palette.Band);
        var closes = past.Select((close, session) => At(canvas, session, close)).Where(point => double.IsFinite(point.Y));
        Join(canvas, [.. closes], Palette.Past);
    }

    private List<(double X, double Y)> Points(Canvas canvas, double[] line) =>
        [At(canvas, past.Count - 1, past[^1]), .. line.Select((value, h) => At(canvas, past.Count - 1 + horizons[h], value))];

    private (double X, double Y) At(Canvas canvas, int session, double value)
    {
        var span = Math.Max(Highest - Lowest, 1e-12);
        return (session * (canvas.Width - 1.0) / Sessions, (Highest - value) * (canvas.Height - 1.0) / span);
    }

    private static void Join(Canvas canvas, List<(double X, double Y)> points, Color color)
    {
        for (var point = 1; point < points.Count; point++)
            canvas.Line(points[point - 1], points[point], color);
    }

    /// <summary>Fills the band between the outer lines with sparse dots, so that the median stands out.</summary>
    private static void Fill(Canvas canvas, List<(double X, double Y)> low, List<(double X, double Y)> high)
    {
        for (var x = (int)Math.Ceiling(low[0].X); x <= (int)low[^1].X; x++)
        {
            for (var y = (int)HeightAt(high, x); y <= (int)HeightAt(low, x); y++)
            {
                if ((x + (2 * y)) % 4 == 0)
                    canvas.Dot(x, y, Palette.Band);
            }
        }
    }

    private static double HeightAt(List<(double X, double Y)> line, double x)
    {
        var next = Math.Max(1, line.FindIndex(point => point.X >= x));
        var (from, to) = (line[next - 1], line[next]);
        return from.Y + ((to.Y - from.Y) * (x - from.X) / (to.X - from.X));
    }

    private string Label(int row, int height)
    {
        if (row % LabelEvery != 0)
            return "";
        var value = Highest - ((Highest - Lowest) * row / Math.Max(height - 1, 1));
        return value.ToString(Math.Abs(value) < 10 ? "F4" : "F2", CultureInfo.InvariantCulture);
    }
}
