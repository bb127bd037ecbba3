using System.Globalization;
using Quantra.Client;

namespace Quantra.Terminal.Live;

/// <summary>State of a feed.</summary>
/// <param name="Bars">The symbol's bars so far.</param>
/// <param name="Forecast">The newest forecast.</param>
/// <param name="Days">The pushed days, oldest first.</param>
/// <param name="Reopenings">How often the session was lost and reopened.</param>
internal sealed record LiveState(BarSeries Bars, Forecast Forecast, IReadOnlyList<LiveDay> Days, int Reopenings)
{
    /// <summary>States how many closes were inside their band, and how many are expected.</summary>
    public string Summary()
    {
        var judged = Days.Where(day => day.IsInside is not null).ToList();
        if (judged.Count == 0)
            return Forecast.Prices is null ? "the model gives no prices, by which a day could be judged" : "no day can be judged yet";
        var expected = (Forecast.Quantiles[^1] - Forecast.Quantiles[0]).ToString("0.##%", CultureInfo.InvariantCulture);
        return $"{judged.Count(day => day.IsInside == true)} of {judged.Count} days ended inside {FanChart.Band(Forecast)}; "
            + $"a calibrated model has {expected} there";
    }
}
