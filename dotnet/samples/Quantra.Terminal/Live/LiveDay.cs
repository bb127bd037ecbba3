using System.Globalization;

namespace Quantra.Terminal.Live;

/// <summary>A day of the feed, and what had been forecast for it.</summary>
/// <param name="Session">The day.</param>
/// <param name="Close">How it ended; NaN = nothing traded.</param>
/// <param name="Forecast">What the last forecast of the shortest horizon that ends on it had said; null = there was none.</param>
internal sealed record LiveDay(DateOnly Session, double Close, LiveBand? Forecast)
{
    /// <summary>Whether it ended inside the band; null = there was none, or nothing traded.</summary>
    public bool? IsInside => Forecast is { } band && !double.IsNaN(Close) ? band.Low <= Close && Close <= band.High : null;

    /// <summary>In a word; "" = it cannot be judged.</summary>
    public string Verdict => IsInside switch
    {
        true => "inside",
        false => "outside",
        null => "",
    };

    /// <summary>One line, for where there is no terminal.</summary>
    public override string ToString()
    {
        var forecast = Forecast is { } band
            ? string.Create(CultureInfo.InvariantCulture, $", forecast {band.Median:F2} ({band.Low:F2} to {band.High:F2}) {Verdict}")
            : "";
        return string.Create(CultureInfo.InvariantCulture, $"{Session:yyyy-MM-dd} close {Close:F2}{forecast}");
    }
}
