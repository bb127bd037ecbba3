using System.Globalization;
using Quantra.Client;
using Spectre.Console;
using Spectre.Console.Rendering;

namespace Quantra.Terminal;

/// <summary>A forecast as a fan chart and a table.</summary>
internal sealed class ForecastView(BarSeries bars, Forecast forecast)
{
    private const int ChartHeight = 16;

    /// <summary>Renders the view to the width of the terminal.</summary>
    public IRenderable Render(int width)
    {
        var inner = Math.Clamp(width - 4, 40, 110);
        return new Panel(new Rows([.. FanChart.Of(bars, forecast, inner, ChartHeight), new Text(""), Table(), .. Base(), .. Warnings(), Skill()]))
        {
            Header = new PanelHeader(Heading()),
            Border = BoxBorder.Rounded,
            Width = inner + 4,
            BorderStyle = new Style(Palette.Quiet),
        };
    }

    private string Heading()
    {
        var model = $"{forecast.Model.EscapeMarkup()}@{forecast.Version}";
        var day = forecast.AsOf?.ToString("yyyy-MM-dd", CultureInfo.InvariantCulture) ?? "an unknown day";
        return $" [bold]{bars.Symbol.EscapeMarkup()}[/] · {model} · as of {day} ";
    }

    private Table Table()
    {
        var table = new Table { Border = TableBorder.Simple, BorderStyle = new Style(Palette.Quiet) };
        table.AddColumn(new TableColumn("[grey]days[/]").RightAligned()).AddColumn("[grey]session[/]");
        foreach (var quantile in forecast.Quantiles)
            table.AddColumn(new TableColumn(quantile.ToString("'q'0.###", CultureInfo.InvariantCulture)).RightAligned());
        foreach (var (horizon, index) in forecast.Horizons.Select((horizon, index) => (horizon, index)))
            table.AddRow([$"{horizon}", Session(index), .. forecast.Quantiles.Select(q => Cell(horizon, q))]);
        return table;
    }

    private string Session(int horizon) => forecast.TargetSessions.Count > horizon
        ? forecast.TargetSessions[horizon].ToString("yyyy-MM-dd", CultureInfo.InvariantCulture)
        : "";

    private string Cell(int horizon, double quantile)
    {
        var (value, price) = (forecast.Value(bars.Symbol, horizon, quantile), forecast.Price(bars.Symbol, horizon, quantile));
        if (forecast.Returns is null)
            return value.ToString("F4", CultureInfo.InvariantCulture);
        var color = (value >= 0 ? Palette.Up : Palette.Down).ToMarkup();
        var shown = double.IsNaN(price) ? "" : $"{Forecast.FormatPrice(price)} ";
        var percent = forecast.SimpleReturn(bars.Symbol, horizon, quantile).ToString("+0.0%;-0.0%", CultureInfo.InvariantCulture);
        return $"{shown}[{color}]{percent,7}[/]";
    }

    private IEnumerable<IRenderable> Base()
    {
        if (forecast.Returns is null)
            yield return new Text($"values are of {forecast.TargetKind}", new Style(Palette.Quiet));
        if (forecast.Lag > 0)
            yield return new Text($"counted from {forecast.CountedFrom}", new Style(Palette.Quiet));
    }

    private Text Skill() => new(Client.Skill.LineOf(forecast.Skill), new Style(Palette.Quiet));

    private IEnumerable<IRenderable> Warnings() =>
        forecast.Warnings.Select(warning => new Markup($"[yellow]! {warning.EscapeMarkup()}[/]"));
}
