namespace Quantra.Client;

/// <summary>
/// A panel's history that the predictor keeps. You push the bars of one day after the other. Open one with
/// <see cref="IStockPredictor.OpenSessionAsync"/>.
/// </summary>
/// <remarks>
/// Each forecast equals to the last bit that of <see cref="IStockPredictor.PredictAsync"/> for all bars sent so far. A failed push leaves the
/// session unchanged. Thread-safe: pushes to one session run in the order of the calls, pushes to several sessions in parallel. If a session is
/// lost with its connection or server, the next push reopens it and sends the bars that forecasts depend on; see <see cref="Reopenings"/>.
/// </remarks>
public interface IBarSession : IAsyncDisposable
{
    /// <summary>Id of the session.</summary>
    string SessionId { get; }

    /// <summary>Model of the session.</summary>
    ModelReference Model { get; }

    /// <summary>S names, those of the initial history.</summary>
    IReadOnlyList<string> Symbols { get; }

    /// <summary>Forecast of the initial history.</summary>
    Forecast FirstForecast { get; }

    /// <summary>How often the session was lost and reopened.</summary>
    int Reopenings => 0;

    /// <summary>Why the session was lost the last time; null = never.</summary>
    QuantraError? LastLoss => null;

    /// <summary>Pushes the bars of some or all symbols of one day: the day after the last one, or the last one again.</summary>
    /// <param name="bars">One session, with the columns of the history. A bar that is all NaN means that its symbol has no bar that day.</param>
    /// <param name="covariates">
    /// The history's covariates for these bars: observed ones, and known ones of this day and the days ahead. Null = none.
    /// </param>
    /// <param name="flush">Whether to forecast now. Symbols without a bar so far then have none on this day.</param>
    /// <param name="cancellationToken">Cancels the push, unless it has already been accepted.</param>
    /// <returns>The forecast of all bars sent so far, or the symbols whose bars of the day are still missing.</returns>
    /// <exception cref="QuantraException">
    /// The bars were rejected, and the session is unchanged. RESUBSCRIBE: the session cannot continue; open another one with the whole history.
    /// UNAVAILABLE or DEADLINE_EXCEEDED: no response. You can safely push the same bars again.
    /// </exception>
    /// <exception cref="ObjectDisposedException">The session or its predictor is disposed.</exception>
    Task<PushResult> PushAsync(
        BarPanel bars,
        Covariates? covariates = null,
        bool flush = false,
        CancellationToken cancellationToken = default);

    /// <summary>Pushes one symbol's bar of a day; see the other overload.</summary>
    /// <param name="bars">One session.</param>
    /// <param name="covariates">Covariates of this bar; null = none.</param>
    /// <param name="flush">Whether to forecast now.</param>
    /// <param name="cancellationToken">Cancels the push, unless it has already been accepted.</param>
    /// <returns>The forecast of all bars sent so far, or the symbols whose bars of the day are still missing.</returns>
    /// <exception cref="QuantraException">The bar was rejected, and the session is unchanged.</exception>
    /// <exception cref="ObjectDisposedException">The session or its predictor is disposed.</exception>
    Task<PushResult> PushAsync(
        BarSeries bars,
        Covariates? covariates = null,
        bool flush = false,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return PushAsync(bars.ToPanel(), covariates, flush, cancellationToken);
    }

    /// <summary>Forecasts a day whose bars are incomplete.</summary>
    /// <param name="cancellationToken">Cancels the request, unless it has already been accepted.</param>
    /// <returns>The forecast, or none if nothing traded that day.</returns>
    /// <exception cref="QuantraException">MALFORMED_REQUEST: no day is waiting. Otherwise as for a push.</exception>
    /// <exception cref="ObjectDisposedException">The session or its predictor is disposed.</exception>
    Task<PushResult> FlushAsync(CancellationToken cancellationToken = default);
}
