using System.Runtime.CompilerServices;
using Quantra.Client;

namespace Quantra.Terminal.Live;

/// <summary>Pushes the last days of a file to a session one by one, like a live feed.</summary>
/// <param name="bars">Bars of the symbol, or for a panel model of all symbols.</param>
/// <param name="symbol">The symbol to show.</param>
/// <param name="count">Number of days, 0 or less = none.</param>
/// <param name="pace">Time between two days.</param>
internal sealed class LiveFeed(BarPanel bars, string symbol, int count, TimeSpan pace)
{
    private readonly Dictionary<DateOnly, LiveBand> _forecasts = [];

    /// <summary>Pushes the days.</summary>
    /// <param name="predictor">The predictor.</param>
    /// <param name="model">The model.</param>
    /// <param name="cancellationToken">Ends the feed.</param>
    /// <returns>The state before the first day and after each day.</returns>
    public async IAsyncEnumerable<LiveState> RunAsync(
        IStockPredictor predictor,
        ModelReference model,
        [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var sessions = bars.Sessions[^Math.Max(count, 0)..].ToArray();
        var history = bars.Until(bars.Sessions.Span[^(sessions.Length + 1)]);
        await using var session = await predictor.OpenSessionAsync(new SessionRequest(model, history), cancellationToken);
        var state = new LiveState(history.Select(symbol), session.FirstForecast, [], 0);
        Remember(state.Forecast);
        yield return state;
        using var clock = new PeriodicTimer(pace);
        foreach (var day in sessions)
        {
            await clock.WaitForNextTickAsync(cancellationToken);
            var pushed = await session.PushAsync(bars.Between(day, day), flush: true, cancellationToken: cancellationToken);
            // before the new forecast, which is for later days, is remembered
            var judged = new LiveDay(day, bars.Between(day, day).Select(symbol).Close.Span[0], BandOf(day));
            var forecast = pushed.Forecast ?? state.Forecast;
            state = new LiveState(bars.Until(day).Select(symbol), forecast, [.. state.Days, judged], session.Reopenings);
            Remember(forecast);
            yield return state;
        }
    }

    private LiveBand? BandOf(DateOnly day) => _forecasts.TryGetValue(day, out var band) ? band : null;

    private void Remember(Forecast forecast)
    {
        if (forecast.Prices is null || forecast.TargetSessions.Count == 0 || forecast.Refusals.ContainsKey(symbol))
            return;
        var (lowest, middle) = (forecast.Quantiles[0], forecast.Quantiles[(forecast.Quantiles.Count - 1) / 2]);
        _forecasts[forecast.TargetSessions[0]] = new LiveBand(Price(lowest), Price(middle), Price(forecast.Quantiles[^1]));

        double Price(double quantile) => forecast.Price(symbol, forecast.Horizons[0], quantile);
    }
}
