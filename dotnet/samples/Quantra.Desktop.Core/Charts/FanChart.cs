using System.Globalization;
using Quantra.Client;

namespace Quantra.Desktop.Charts;

/// <summary>The last closes of a symbol and the fan of forecast quantiles.</summary>
/// <remarks>
/// A forecast without prices is drawn without closes: as simple returns in per cent, or as the target's own values.
/// </remarks>
public sealed class FanChart : IChart
{
    private const int PastSessions = 60;
    private const double Left = 58;
    private const double Right = 152;
    private const double Top = 12;
    private const double Bottom = 40;
    private const double CaptionGap = 14;

    private readonly Forecast _forecast;
    private readonly string _symbol;
    private readonly BarSeries _past;
    private readonly double[][] _lines;

    private FanChart(BarSeries past, Forecast forecast, string symbol)
    {
        (_past, _forecast, _symbol) = (past, forecast, symbol);
        _lines = [.. forecast.Quantiles.Select(quantile => forecast.Horizons.Select(horizon => Value(horizon, quantile)).ToArray())];
    }

    /// <summary>Creates the chart of a symbol; null if the symbol has no forecast.</summary>
    /// <param name="bars">The symbol's bars, from which the forecast was made.</param>
    /// <param name="forecast">A forecast that includes the symbol.</param>
    public static FanChart? Of(BarSeries bars, Forecast forecast)
    {
        ArgumentNullException.ThrowIfNull(bars);
        ArgumentNullException.ThrowIfNull(forecast);
        return forecast.Refusals.ContainsKey(bars.Symbol)
            ? null
            : new FanChart(bars.Last(PastSessions), forecast, bars.Symbol);
    }

    /// <inheritdoc/>
    public IReadOnlyList<Shape> Draw(ChartSize size)
    {
        var across = new ValueScale(FirstDay, LastDay, Left, size.Width - Right);
        var up = ValueScale.Over([.. Closes.Select(close => close.Value), .. _lines.SelectMany(line => line), Origin], size.Height - Bottom, Top);
        return [.. ValueAxis.Draw(across, up, Text), .. DayAxis(across, size.Height - Bottom), .. Fan(across, up), .. Ends(across, up)];
    }

    private bool HasPrices => _forecast.Prices is not null;

    private int FirstDay => HasPrices ? 1 - _past.Sessions.Length : 0;

    private int LastDay => _forecast.Lag + _forecast.Horizons[^1];

    /// <summary>Closes by session relative to the last bar. Days without a bar are left out.</summary>
    private IEnumerable<(int Day, double Value)> Closes => HasPrices
        ? Enumerable.Range(0, _past.Close.Length)
            .Select(index => (index + 1 - _past.Close.Length, _past.Close.Span[index]))
            .Where(close => double.IsFinite(close.Item2))
        : [];

    /// <summary>Where the fan starts: at the last close or at zero change; NaN for other targets.</summary>
    private double Origin => HasPrices ? Closes.Last().Value : _forecast.Returns is null ? double.NaN : 0;

    private double Value(int horizon, double quantile) => HasPrices
        ? _forecast.Price(_symbol, horizon, quantile)
        : _forecast.Returns is null
            ? _forecast.Value(_symbol, horizon, quantile)
            : 100 * _forecast.SimpleReturn(_symbol, horizon, quantile);

    private IEnumerable<Shape> DayAxis(ValueScale across, double bottom)
    {
        var begin = across.At(0);
        yield return new Stroke([new(begin, Top), new(begin, bottom)], Ink.Quiet, 1, IsDashed: true);
        var last = double.NegativeInfinity;
        foreach (var horizon in _forecast.Horizons)
        {
            var x = across.At(_forecast.Lag + horizon);
            yield return new Stroke([new(x, bottom), new(x, bottom + 4)], Ink.Quiet);
            if (x - last < 2 * CaptionGap)
                continue;
            last = x;
            yield return new Caption(new(x, bottom + 12), string.Create(CultureInfo.InvariantCulture, $"+{horizon}"), Ink.Quiet, Anchor.Middle);
        }

        if (HasPrices)
            yield return new Caption(new(across.From, bottom + 28), Day(_past.Sessions.Span[0]), Ink.Quiet);
        if (_forecast.AsOf is { } day)
            yield return new Caption(new(begin, bottom + 28), Day(day), Ink.Text, HasPrices ? Anchor.Middle : Anchor.Start);
        if (_forecast.TargetSessions.Count > 0)
            yield return new Caption(new(across.To, bottom + 28), Day(_forecast.TargetSessions[^1]), Ink.Quiet, Anchor.Middle);
    }

    private IEnumerable<Shape> Fan(ValueScale across, ValueScale up)
    {
        var lines = _lines.Select(line => Points(line, across, up)).ToArray();
        for (var outer = 0; outer < lines.Length / 2; outer++)
            yield return new Area([.. lines[outer], .. lines[^(outer + 1)].Reverse()], Ink.Band, 0.35);
        foreach (var line in lines)
            yield return new Stroke(line, Ink.Band);
        if (lines.Length % 2 == 1)
            yield return new Stroke(lines[lines.Length / 2], Ink.Median, 2);
        Point[] closes = [.. Closes.Select(close => new Point(across.At(close.Day), up.At(close.Value)))];
        if (closes.Length > 1)
            yield return new Stroke(closes, Ink.Past, 1.5);
    }

    private Point[] Points(double[] line, ValueScale across, ValueScale up)
    {
        var points = line.Select((value, index) => new Point(across.At(_forecast.Lag + _forecast.Horizons[index]), up.At(value)));
        return double.IsNaN(Origin) ? [.. points] : [new(across.At(_forecast.Lag), up.At(Origin)), .. points];
    }

    /// <summary>Labels the values at the last horizon from top to bottom, moved apart where they would overlap.</summary>
    private IEnumerable<Shape> Ends(ValueScale across, ValueScale up)
    {
        var above = double.NegativeInfinity;
        for (var line = _lines.Length - 1; line >= 0; line--)
        {
            above = Math.Max(above + CaptionGap, up.At(_lines[line][^1]));
            var isMedian = 2 * line == _lines.Length - 1;
            yield return new Caption(new(across.To + 6, above), End(line), isMedian ? Ink.Median : Ink.Text);
        }
    }

    private string End(int line)
    {
        var (horizon, quantile) = (_forecast.Horizons[^1], _forecast.Quantiles[line]);
        var percent = _forecast.SimpleReturn(_symbol, horizon, quantile);
        var change = HasPrices ? percent.ToString(" (+0.0 %); (-0.0 %)", CultureInfo.InvariantCulture) : "";
        return string.Create(CultureInfo.InvariantCulture, $"{Text(_lines[line][^1])}{change} q{100 * quantile:0.#}");
    }

    private string Text(double value) => HasPrices || _forecast.Returns is null
        ? value.ToString(Math.Abs(value) < 10 ? "F4" : "F2", CultureInfo.InvariantCulture)
        : value.ToString("+0.0' %';-0.0' %';0' %'", CultureInfo.InvariantCulture);

    private static string Day(DateOnly day) => day.ToString("yyyy-MM-dd", CultureInfo.InvariantCulture);
}
