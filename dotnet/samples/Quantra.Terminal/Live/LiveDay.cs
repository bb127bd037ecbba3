using System.Globalization;

namespace Quantra.Terminal.Live;

/// <summary>A day of the feed and its earlier forecast.</summary>
/// <param name="Session">The day.</param>
/// <param name="Close">Close of the day; NaN = nothing traded.</param>
/// <param name="Forecast">Latest forecast for this day at the shortest horizon; null = none.</param>
internal sealed record LiveDay(DateOnly Session, double Close, LiveBand? Forecast)
{
    /// <summary>Whether the close is inside the band; null = no forecast, or nothing traded.</summary>
    public bool? IsInside => Forecast is { } band && !double.IsNaN(Close) ? band.Low <= Close && Close <= band.High : null;

    /// <summary>The result in a word; "" = unknown.</summary>
    public string Verdict => IsInside switch
    {
        true => "inside",
        false => "outside",
        null => "",
    };

    /// <summary>Formats one line, for redirected output.</summary>
    public override string ToString()
    {
        var forecast = Forecast is { } band
            ? $", forecast {Client.Forecast.FormatPrice(band.Median)} ({Client.Forecast.FormatPrice(band.Low)} to {Client.Forecast.FormatPrice(band.High)}) {Verdict}"
            : "";
        return string.Create(CultureInfo.InvariantCulture, $"{Session:yyyy-MM-dd} close {Client.Forecast.FormatPrice(Close)}{forecast}");
    }
}
