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
    /// <remarks>
    /// The panel may be a whole universe: of its bars the last ones that the model needs are sent alone, which give the forecast of all, and
    /// what is still more than one request may hold goes in several calls within one timeout, unless the model looks across symbols.
    /// </remarks>
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

    /// <summary>Forecasts as many panels as one likes over one call, each as soon as it is there; a bad one does not fail the others.</summary>
    /// <param name="requests">
    /// Of any models. They are taken one by one on threads of the pool, and no faster than results are read, so that there may be
    /// more of them than memory. What they throw is thrown once to whoever reads, and ends the call. A
    /// <see cref="PredictionRequest.RequestId"/> may be used again once its result was read; a request without one is named by its
    /// place among all, from "0".
    /// </param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>
    /// One result per request, in the order in which they are ready, each a forecast or an error, such as DUPLICATE_ID for an id that
    /// another request has which was not answered. Whoever stops to read cancels the rest.
    /// </returns>
    /// <exception cref="QuantraException">
    /// The whole call failed, after the results that were there. A predictor's timeout counts for each request, not for the call.
    /// </exception>
    /// <remarks>A predictor that does not implement this asks <see cref="PredictAsync"/> for one request after the other.</remarks>
    IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        OneByOne.PredictStreamAsync(this, requests, cancellationToken);

    /// <summary>Sends a panel's history once; then the bars of each day are pushed, and answered with the forecast of all bars sent so far.</summary>
    /// <param name="request">The model and the history.</param>
    /// <param name="cancellationToken">Cancels the call; not the session, once it is open.</param>
    /// <returns>A session, which ends when it is disposed, or its predictor.</returns>
    /// <exception cref="QuantraException">
    /// The history or the model was refused, as by <see cref="PredictAsync"/>; DUPLICATE_ID: there is a session of this name;
    /// QUEUE_FULL: there are too many.
    /// </exception>
    /// <remarks>
    /// A predictor that does not implement this keeps the bars in this process and asks <see cref="PredictAsync"/> for all of them at
    /// each push: the same forecasts, without what a predictor saves by keeping them.
    /// </remarks>
    Task<IBarSession> OpenSessionAsync(SessionRequest request, CancellationToken cancellationToken = default) =>
        PredictorSession.OpenAsync(this, request, cancellationToken);

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

    /// <summary>Tells what moves a model's forecasts in general, over many instances.</summary>
    /// <param name="request">The instances, and the horizons and quantiles to explain.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>
    /// What is known after each instance, or about a hundred times where there are more, each over all so far; the last one is the
    /// result. Whoever stops to read cancels the rest. An instance that cannot be explained is counted, with its reason.
    /// </returns>
    /// <exception cref="QuantraException">The model or a target was refused, or the call failed, at any step.</exception>
    /// <exception cref="NotSupportedException">The predictor does not implement this.</exception>
    IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        GlobalExplanationRequest request,
        CancellationToken cancellationToken = default) =>
        throw new NotSupportedException($"{GetType().Name} does not explain over many instances; QuantraClient and EmbeddedPredictor do");

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
