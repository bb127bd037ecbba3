using System.Globalization;
using Quantra.Client;

namespace Quantra.Desktop.Charts;

/// <summary>Past forecasts of one horizon, as a band over the sessions on which they ended, and what happened.</summary>
/// <remarks>Outcomes inside the band are green, others red. Returns are shown in per cent.</remarks>
public sealed class OutcomeChart : IChart
{
    private const double Left = 58;
    private const double Right = 12;
    private const double Top = 12;
    private const double Bottom = 28;
    private const double DotSize = 5;

    private readonly IReadOnlyList<RecordedForecast> _forecasts;
    private readonly int _horizon;

    private OutcomeChart(IReadOnlyList<RecordedForecast> forecasts, int horizon) => (_forecasts, _horizon) = (forecasts, horizon);

    /// <summary>Creates the chart; null if there are less than two forecasts of the horizon.</summary>
    /// <param name="forecasts">Forecasts of one symbol and target, with dates, oldest first.</param>
    /// <param name="horizon">Trading days ahead.</param>
    public static OutcomeChart? Of(IReadOnlyList<RecordedForecast> forecasts, int horizon)
    {
        RecordedForecast[] shown = [.. forecasts.Where(forecast => forecast.Horizons.Contains(horizon))];
        return shown.Length > 1 ? new OutcomeChart(shown, horizon) : null;
    }

    /// <inheritdoc/>
    public IReadOnlyList<Shape> Draw(ChartSize size)
    {
        var across = new ValueScale(0, _forecasts.Count - 1, Left, size.Width - Right);
        var (low, middle, high) = (Line(0), Line((Quantiles.Count - 1) / 2), Line(Quantiles.Count - 1));
        var outcomes = _forecasts.Select(forecast => Shown(forecast.Outcome(_horizon)?.Value ?? double.NaN)).ToArray();
        var up = ValueScale.Over([.. low, .. high, .. outcomes], size.Height - Bottom, Top);
        return
        [
            .. ValueAxis.Draw(across, up, Text),
            new Area([.. Points(low), .. Points(high).Reverse()], Ink.Band, 0.35),
            new Stroke(Points(middle), Ink.Median, 1.5),
            .. outcomes.SelectMany((value, index) => double.IsNaN(value) ? [] : Dot(new(across.At(index), up.At(value)), index)),
            new Caption(new(across.From, size.Height - (Bottom / 2)), Day(_forecasts[0]), Ink.Quiet),
            new Caption(new(across.To, size.Height - (Bottom / 2)), Day(_forecasts[^1]), Ink.Quiet, Anchor.End),
        ];

        Point[] Points(double[] line) => [.. line.Select((value, index) => new Point(across.At(index), up.At(value)))];
    }

    private IReadOnlyList<double> Quantiles => _forecasts[0].Quantiles;

    private bool IsReturn => _forecasts[0].TargetKind == "log-return";

    /// <summary>Values of one quantile, by its position, because versions may differ in their quantiles.</summary>
    private double[] Line(int index) =>
        [.. _forecasts.Select(forecast => Shown(forecast.Value(_horizon, forecast.Quantiles[Math.Min(index, forecast.Quantiles.Count - 1)])))];

    private double Shown(double value) => IsReturn ? 100 * (Math.Exp(value) - 1) : value;

    private IEnumerable<Shape> Dot(Point at, int index)
    {
        var ink = _forecasts[index].Outcome(_horizon)!.IsInside == true ? Ink.Up : Ink.Down;
        var (left, right, top, bottom) = (at.X - (DotSize / 2), at.X + (DotSize / 2), at.Y - (DotSize / 2), at.Y + (DotSize / 2));
        yield return new Area([new(left, top), new(right, top), new(right, bottom), new(left, bottom)], ink);
    }

    private string Day(RecordedForecast forecast) =>
        forecast.TargetSessions[forecast.Horizons.ToList().IndexOf(_horizon)].ToString("yyyy-MM-dd", CultureInfo.InvariantCulture);

    private string Text(double value) => IsReturn
        ? value.ToString("+0.0' %';-0.0' %';0' %'", CultureInfo.InvariantCulture)
        : value.ToString("F4", CultureInfo.InvariantCulture);
}
