namespace Quantra.Client;

/// <summary>
/// Forecasts and their reasons, from a server (<see cref="QuantraClient"/>) or from Python inside this process
/// (<c>EmbeddedPredictor</c> of Quantra.Client.Embedded). Both give the same numbers and the same errors.
/// </summary>
/// <remarks>
/// Safe to use from many threads. Every call may throw <see cref="QuantraException"/>, and
/// <see cref="OperationCanceledException"/> if its token was cancelled. There are no blocking variants, because a
/// blocked UI thread can deadlock: <c>await</c> the tasks.
/// </remarks>
public interface IStockPredictor : IAsyncDisposable
{
    /// <summary>Forecasts one panel of bars or feature windows.</summary>
    /// <param name="request">The model and what it reads.</param>
    /// <param name="cancellationToken">Gives the call up.</param>
    /// <returns>Quantiles for every symbol and horizon.</returns>
    /// <exception cref="QuantraException">The input or the model was refused; see its Reason.</exception>
    Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default);

    /// <summary>Forecasts many panels; a bad one does not fail the others.</summary>
    /// <param name="requests">Any number of requests; those of one model travel together.</param>
    /// <param name="cancellationToken">Gives the call up.</param>
    /// <returns>
    /// One result a request, in the order of the requests, each a forecast or an error; an unknown model is the error of
    /// its own requests.
    /// </returns>
    /// <exception cref="QuantraException">No model answered at all, for example because the only one is unknown.</exception>
    Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default);

    /// <summary>Tells how much each input moved a forecast.</summary>
    /// <param name="request">The forecast, and the horizon and quantile to explain.</param>
    /// <param name="cancellationToken">Gives the call up.</param>
    /// <returns>Signed contributions in the forecast's own unit.</returns>
    /// <exception cref="QuantraException">The input, the model or the target was refused; see its Reason.</exception>
    Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default);

    /// <summary>Tells how much each input moved several numbers of a forecast, such as all its horizons.</summary>
    /// <param name="request">The forecast, and the horizons and quantiles to explain.</param>
    /// <param name="cancellationToken">Gives the call up.</param>
    /// <returns>One attribution a target, in the order of the request.</returns>
    /// <exception cref="QuantraException">The input, the model or a target was refused; see its Reason.</exception>
    Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default);

    /// <summary>Lists every model that is served, with its versions.</summary>
    /// <param name="cancellationToken">Gives the call up.</param>
    /// <returns>One entry a version.</returns>
    /// <exception cref="QuantraException">Nobody answered; see its Reason.</exception>
    Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default);

    /// <summary>Tells what a model reads, what it forecasts and where it came from.</summary>
    /// <param name="model">"NAME", "NAME@VERSION" or "NAME@ALIAS".</param>
    /// <param name="cancellationToken">Gives the call up.</param>
    /// <returns>The one version that the reference means.</returns>
    /// <exception cref="QuantraException">There is no such model or version; the message lists those that exist.</exception>
    Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default);
}
