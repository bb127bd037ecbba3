using System.Globalization;
using Quantra.Client;
using Spectre.Console;
using Spectre.Console.Rendering;

namespace Quantra.Terminal.Live;

/// <summary>The fan of the newest forecast, and the last days with their earlier forecasts.</summary>
/// <param name="state">The state to show; null = no forecast yet.</param>
/// <param name="server">Status of the program's own server; "" = it has none.</param>
internal sealed class LiveView(LiveState? state, string server)
{
    private const int Shown = 6;
    private const int OtherLines = Shown + 10;
    private const int Lowest = 4;
    private const int Highest = 16;

    /// <summary>Renders the view to fit the terminal.</summary>
    public IRenderable Render(int width, int height)
    {
        var inner = Math.Clamp(width - 4, 40, 110);
        IRenderable[] body = state is null
            ? [new Text("waiting for the first forecast", new Style(Palette.Quiet))]
            :
            [
                .. FanChart.Of(state.Bars, state.Forecast, inner, Math.Clamp(height - OtherLines, Lowest, Highest)),
                Table(state),
                new Text(state.Summary(), new Style(Palette.Quiet)),
            ];
        return new Panel(new Rows([.. body, new Text(Footer(), new Style(Palette.Quiet))]))
        {
            Header = new PanelHeader(state is null ? " live " : Heading(state)),
            Border = BoxBorder.Rounded,
            Width = inner + 4,
            BorderStyle = new Style(Palette.Quiet),
        };
    }

    private static string Heading(LiveState state) => string.Create(
        CultureInfo.InvariantCulture,
        $" [bold]{state.Bars.Symbol.EscapeMarkup()}[/] · {state.Forecast.Model.EscapeMarkup()}@{state.Forecast.Version} · as of {state.Forecast.AsOf:yyyy-MM-dd} ");

    private static Table Table(LiveState state)
    {
        var table = new Table { Border = TableBorder.Simple, BorderStyle = new Style(Palette.Quiet) };
        table.AddColumn("[grey]session[/]");
        foreach (var name in (string[])["close", "forecast", FanChart.Band(state.Forecast), ""])
            table.AddColumn(new TableColumn($"[grey]{name}[/]").RightAligned());
        foreach (var day in state.Days.TakeLast(Shown).Reverse())
            table.AddRow([day.Session.ToString("yyyy-MM-dd", CultureInfo.InvariantCulture), Number(day.Close), .. Forecast(day)]);
        for (var row = state.Days.Count; row < Shown; row++)
            table.AddRow("", "", "", "", "");
        return table;
    }

    private static string[] Forecast(LiveDay day)
    {
        if (day.Forecast is not { } band)
            return ["", "", ""];
        var color = (day.IsInside == true ? Palette.Up : Palette.Down).ToMarkup();
        return [Number(band.Median), $"{Number(band.Low)} to {Number(band.High)}", $"[{color}]{day.Verdict}[/]"];
    }

    private static string Number(double price) => Quantra.Client.Forecast.FormatPrice(price);

    private string Footer()
    {
        var reopened = state switch
        {
            { Reopenings: 1 } => "session reopened once",
            { Reopenings: > 1 } => string.Create(CultureInfo.InvariantCulture, $"session reopened {state.Reopenings} times"),
            _ => "",
        };
        return string.Join(" · ", ((string[])[server, reopened, "q ends"]).Where(part => part.Length > 0));
    }
}
