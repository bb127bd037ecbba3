namespace Quantra.Client;

/// <summary>
/// Forecasts and their explanations, from a server (<c>QuantraClient</c> of Quantra.Client) or from Python inside this process
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
    /// <param name="request">The model and its input.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>Quantiles for every symbol and horizon.</returns>
    /// <exception cref="QuantraException">The input or the model was refused; its Reason says why.</exception>
    Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default);

    /// <summary>Forecasts many panels; a bad one does not fail the others.</summary>
    /// <param name="requests">Any number of requests; those of one model are sent together.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>
    /// One result per request, in the order of the requests, each a forecast or an error; an unknown model is the error of
    /// its own requests.
    /// </returns>
    /// <exception cref="QuantraException">No request was answered, for example because no model is known.</exception>
    Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default);

    /// <summary>Explains a number of a forecast: how much each input moved it.</summary>
    /// <param name="request">The forecast, and the horizon and quantile to explain.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>Signed contributions in the forecast's unit.</returns>
    /// <exception cref="QuantraException">The input, the model or the target was refused; its Reason says why.</exception>
    Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default);

    /// <summary>Explains several numbers of a forecast, such as those of all its horizons.</summary>
    /// <param name="request">The forecast, and the horizons and quantiles to explain.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>One attribution per target, in the order of the request.</returns>
    /// <exception cref="QuantraException">The input, the model or a target was refused; its Reason says why.</exception>
    Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default);

    /// <summary>Lists every version of every model that is served.</summary>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>One entry per version.</returns>
    /// <exception cref="QuantraException">The call failed; its Reason says why.</exception>
    Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default);

    /// <summary>Describes a model: what it reads, what it forecasts and where it came from.</summary>
    /// <param name="model">"NAME", "NAME@VERSION" or "NAME@ALIAS".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The version that the reference means.</returns>
    /// <exception cref="QuantraException">There is no such model or version; the message lists those that exist.</exception>
    Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default);
}
