using System.Globalization;
using Quantra.Client;
using Quantra.Desktop.Charts;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>A symbol's forecast: chart, table and notes.</summary>
public sealed class FanViewModel : ObservableObject
{
    private FanChart? _chart;
    private string _heading = "";
    private string _footer = "";
    private IReadOnlyList<string> _columns = [];
    private IReadOnlyList<ForecastLine> _lines = [];
    private IReadOnlyList<string> _warnings = [];

    /// <summary>The chart; null = no forecast.</summary>
    public FanChart? Chart
    {
        get => _chart;
        private set => Set(ref _chart, value);
    }

    /// <summary>Symbol, model and day of the last bar.</summary>
    public string Heading
    {
        get => _heading;
        private set => Set(ref _heading, value);
    }

    /// <summary>Column names of the values, for example q0.1.</summary>
    public IReadOnlyList<string> Columns
    {
        get => _columns;
        private set => Set(ref _columns, value);
    }

    /// <summary>Table rows, one per horizon.</summary>
    public IReadOnlyList<ForecastLine> Lines
    {
        get => _lines;
        private set => Set(ref _lines, value);
    }

    /// <summary>Warnings about the input or the forecast.</summary>
    public IReadOnlyList<string> Warnings
    {
        get => _warnings;
        private set => Set(ref _warnings, value);
    }

    /// <summary>The day from which the numbers count, and the model's skill on held-out days.</summary>
    public string Footer
    {
        get => _footer;
        private set => Set(ref _footer, value);
    }

    /// <exception cref="QuantraException">The symbol has no forecast.</exception>
    public void Show(BarSeries bars, Forecast forecast)
    {
        ArgumentNullException.ThrowIfNull(bars);
        ArgumentNullException.ThrowIfNull(forecast);
        if (forecast.Refusals.TryGetValue(bars.Symbol, out var refusal))
            throw refusal.ToException();
        Chart = FanChart.Of(bars, forecast);
        Heading = $"{bars.Symbol} · {forecast.Model}@{forecast.Version}{AsOf(forecast)}";
        Columns = [.. forecast.Quantiles.Select(quantile => quantile.ToString("'q'0.###", CultureInfo.InvariantCulture))];
        Lines = [.. forecast.Horizons.Select((horizon, index) => Line(bars.Symbol, forecast, horizon, index))];
        Warnings = forecast.Warnings;
        Footer = $"{(forecast.Lag > 0 ? $"counted from {forecast.CountedFrom}; " : "")}{Skill.LineOf(forecast.Skill)}";
    }

    public void Clear()
    {
        (Chart, Heading, Footer) = (null, "", "");
        (Columns, Lines, Warnings) = ([], [], []);
    }

    private static string AsOf(Forecast forecast) =>
        forecast.AsOf is { } day ? string.Create(CultureInfo.InvariantCulture, $" · as of {day:yyyy-MM-dd}") : "";

    private static ForecastLine Line(string symbol, Forecast forecast, int horizon, int index)
    {
        var session = forecast.TargetSessions.Count > index
            ? forecast.TargetSessions[index].ToString("yyyy-MM-dd", CultureInfo.InvariantCulture)
            : "";
        return new(horizon, session, [.. forecast.Quantiles.Select(quantile => Cell(symbol, forecast, horizon, quantile))]);
    }

    private static string Cell(string symbol, Forecast forecast, int horizon, double quantile)
    {
        if (forecast.Returns is null)
            return forecast.Value(symbol, horizon, quantile).ToString("F4", CultureInfo.InvariantCulture);
        var change = forecast.SimpleReturn(symbol, horizon, quantile).ToString("+0.0 %;-0.0 %", CultureInfo.InvariantCulture);
        var price = forecast.Price(symbol, horizon, quantile);
        return double.IsNaN(price) ? change : $"{Forecast.FormatPrice(price)}  {change}";
    }
}
