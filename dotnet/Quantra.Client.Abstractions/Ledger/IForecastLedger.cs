namespace Quantra.Client;

/// <summary>
/// What a server's ledger records: forecasts with their outcomes, the lamps of the models, and events. Get it from <c>QuantraClient.Ledger</c>.
/// </summary>
/// <remarks>
/// Thread-safe. Every call may throw <see cref="QuantraException"/>, with the reason <see cref="QuantraReason.NoLedger"/> if the server has no ledger, and
/// <see cref="OperationCanceledException"/> if its token was cancelled.
/// </remarks>
public interface IForecastLedger
{
    /// <summary>Reads the forecasts of one id, with their outcomes so far.</summary>
    /// <param name="forecastId"><see cref="Forecast.ForecastId"/> of the forecast.</param>
    /// <param name="symbol">One of its symbols; null = all.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>One forecast per symbol and role; empty if the ledger does not have the forecast.</returns>
    /// <exception cref="QuantraException">The call failed; see its Reason.</exception>
    Task<IReadOnlyList<RecordedForecast>> GetForecastsAsync(
        string forecastId,
        string? symbol = null,
        CancellationToken cancellationToken = default);

    /// <summary>Lists forecasts with their outcomes so far, oldest first.</summary>
    /// <param name="query">Which forecasts; <c>new()</c> = all.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The forecasts. To cancel the rest, stop reading.</returns>
    /// <exception cref="QuantraException">The query was rejected, or the call failed at any step.</exception>
    /// <remarks>The client reads ahead, so limit the query if the ledger is large.</remarks>
    IAsyncEnumerable<RecordedForecast> ListForecastsAsync(ForecastQuery query, CancellationToken cancellationToken = default);

    /// <summary>Reads the newest lamps of the models.</summary>
    /// <param name="model">"NAME" or "NAME@VERSION"; null = all.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The health of each version, and the newest session of the ledger.</returns>
    /// <exception cref="QuantraException">The call failed; see its Reason.</exception>
    Task<LedgerHealth> GetHealthAsync(ModelReference? model = null, CancellationToken cancellationToken = default);

    /// <summary>Reads the events of the ledger, oldest first, and then each new one as soon as it is recorded.</summary>
    /// <param name="model">The model whose events to read; null = all.</param>
    /// <param name="after"><see cref="LedgerEvent.Number"/> of the last event that you know; 0 = none.</param>
    /// <param name="cancellationToken">Ends the call.</param>
    /// <returns>An endless sequence, until you stop reading, cancel it or dispose the client.</returns>
    /// <exception cref="QuantraException">The request was rejected, or the server has been unavailable for the client's timeout.</exception>
    /// <remarks>
    /// If the connection or the server is lost, the client reconnects and continues after the last event, so that no event is lost or repeated.
    /// </remarks>
    IAsyncEnumerable<LedgerEvent> WatchEventsAsync(
        ModelReference? model = null,
        long after = 0,
        CancellationToken cancellationToken = default);
}
