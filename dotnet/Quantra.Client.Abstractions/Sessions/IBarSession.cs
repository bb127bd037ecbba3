namespace Quantra.Client;

/// <summary>
/// A panel's history that the predictor keeps, and to which the bars of one day after the other are pushed; opened by
/// <see cref="IStockPredictor.OpenSessionAsync"/>.
/// </summary>
/// <remarks>
/// Each forecast is that of all bars sent so far, to the last bit what <see cref="IStockPredictor.PredictAsync"/> gives for them.
/// What fails leaves the session as it was. Safe to use from many threads: pushes are taken one after the other, in the order of
/// the calls, and those to several sessions side by side. A session that is lost, as with its connection or its server, is opened
/// again by the next push, which then sends once more what forecasts depend on; <see cref="Reopenings"/> tells.
/// </remarks>
public interface IBarSession : IAsyncDisposable
{
    /// <summary>Its name.</summary>
    string SessionId { get; }

    /// <summary>The model that it asks.</summary>
    ModelReference Model { get; }

    /// <summary>S names; those of the history that it began with.</summary>
    IReadOnlyList<string> Symbols { get; }

    /// <summary>The forecast of the history that it began with.</summary>
    Forecast FirstForecast { get; }

    /// <summary>How often it was lost and opened again.</summary>
    int Reopenings => 0;

    /// <summary>Why it had to be opened again the last time; null = it never had to.</summary>
    QuantraError? LastLoss => null;

    /// <summary>Sends the bars of one day, of some symbols or all: of the day after the last one, or of the last one again.</summary>
    /// <param name="bars">One session, with the columns that the history has. A bar that is all NaN says that its symbol has none.</param>
    /// <param name="covariates">
    /// With these bars, those that the history had: observed ones, and known ones of this day and the days ahead. Null = none.
    /// </param>
    /// <param name="flush">Whether to forecast now: symbols whose bars have not come have none on this day.</param>
    /// <param name="cancellationToken">Cancels the push, unless it has been taken already.</param>
    /// <returns>The forecast of all bars sent so far; or which symbols it waits for, while bars of the day are missing.</returns>
    /// <exception cref="QuantraException">
    /// The bars were refused, and the session is as it was before. RESUBSCRIBE: it cannot go on; open another one with the whole
    /// history. UNAVAILABLE or DEADLINE_EXCEEDED: nobody answered. To push the same bars again does no harm.
    /// </exception>
    /// <exception cref="ObjectDisposedException">The session, or its predictor, was disposed.</exception>
    Task<PushResult> PushAsync(
        BarPanel bars,
        Covariates? covariates = null,
        bool flush = false,
        CancellationToken cancellationToken = default);

    /// <summary>Sends one symbol's bar of a day; see the other overload.</summary>
    /// <param name="bars">One session.</param>
    /// <param name="covariates">With this bar; null = none.</param>
    /// <param name="flush">Whether to forecast now.</param>
    /// <param name="cancellationToken">Cancels the push, unless it has been taken already.</param>
    /// <returns>The forecast of all bars sent so far, or which symbols it waits for.</returns>
    /// <exception cref="QuantraException">The bar was refused, and the session is as it was before.</exception>
    /// <exception cref="ObjectDisposedException">The session, or its predictor, was disposed.</exception>
    Task<PushResult> PushAsync(
        BarSeries bars,
        Covariates? covariates = null,
        bool flush = false,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return PushAsync(bars.ToPanel(), covariates, flush, cancellationToken);
    }

    /// <summary>Forecasts a day that waits for bars, without them.</summary>
    /// <param name="cancellationToken">Cancels the request, unless it has been taken already.</param>
    /// <returns>The forecast; none if nothing traded that day.</returns>
    /// <exception cref="QuantraException">MALFORMED_REQUEST: no day waits; or as for a push.</exception>
    /// <exception cref="ObjectDisposedException">The session, or its predictor, was disposed.</exception>
    Task<PushResult> FlushAsync(CancellationToken cancellationToken = default);
}
