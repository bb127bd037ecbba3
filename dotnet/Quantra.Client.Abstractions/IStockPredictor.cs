namespace Quantra.Client;

/// <summary>
/// Forecasts and explanations, from a server (<c>QuantraClient</c> of Quantra.Client) or from Python inside this process
/// (<c>EmbeddedPredictor</c> of Quantra.Client.Embedded). Both return the same numbers and errors.
/// </summary>
/// <remarks>
/// Thread-safe. Every call may throw <see cref="QuantraException"/>, and <see cref="OperationCanceledException"/> if its token was
/// cancelled. There are no blocking variants, because blocking a UI thread can cause a deadlock: <c>await</c> the tasks.
/// </remarks>
public interface IStockPredictor : IAsyncDisposable
{
    /// <summary>Forecasts one panel of bars or feature windows.</summary>
    /// <param name="request">The model and its input.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>Quantiles for every symbol and horizon.</returns>
    /// <exception cref="QuantraException">The request was rejected; see its Reason.</exception>
    /// <remarks>
    /// The panel may be a whole universe. Only the last bars that the model needs are sent, which does not change the forecast. What is still too
    /// large for one request is split into several calls within one timeout, unless the model looks across symbols.
    /// </remarks>
    Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default);

    /// <summary>Forecasts many panels. An invalid one does not fail the others.</summary>
    /// <param name="requests">Any number of requests. Those of one model are sent together.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>
    /// One result per request, in order, each a forecast or an error. An unknown model is an error of its own requests only.
    /// </returns>
    /// <exception cref="QuantraException">No request was answered, for example because all models are unknown.</exception>
    Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default);

    /// <summary>Forecasts a stream of panels over one call. Results arrive as soon as they are ready. An invalid panel does not fail the others.</summary>
    /// <param name="requests">
    /// Requests of any models. They are enumerated on pool threads, and no faster than you read results, so the stream may be endless. An
    /// exception of the enumeration ends the call and is thrown to the reader. A <see cref="PredictionRequest.RequestId"/> can be reused after
    /// its result was read. A request without an id gets its position in the stream, from "0".
    /// </param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>
    /// One result per request, in order of completion, each a forecast or an error. A request whose id is in use gets DUPLICATE_ID. To cancel
    /// the remaining requests, stop reading.
    /// </returns>
    /// <exception cref="QuantraException">
    /// The call failed; thrown after the results that are ready. The predictor's timeout applies to each request, not to the call.
    /// </exception>
    /// <remarks>The default implementation calls <see cref="PredictAsync"/> for one request after the other.</remarks>
    IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        SequentialPredictions.PredictStreamAsync(this, requests, cancellationToken);

    /// <summary>Opens a session with a panel's history. You then push the bars of each day, and get the forecast of all bars sent so far.</summary>
    /// <param name="request">The model and the history.</param>
    /// <param name="cancellationToken">Cancels the call, but not the open session.</param>
    /// <returns>A session. It ends when it or its predictor is disposed.</returns>
    /// <exception cref="QuantraException">
    /// The request was rejected, as by <see cref="PredictAsync"/>. DUPLICATE_ID: a session with this id is open. QUEUE_FULL: there are too many
    /// sessions.
    /// </exception>
    /// <remarks>
    /// The default implementation keeps the bars in this process and calls <see cref="PredictAsync"/> with all of them at each push. The forecasts
    /// are the same, but each push costs as much as a full request.
    /// </remarks>
    Task<IBarSession> OpenSessionAsync(SessionRequest request, CancellationToken cancellationToken = default) =>
        LocalBarSession.OpenAsync(this, request, cancellationToken);

    /// <summary>Explains a number of a forecast: how much each input moved it.</summary>
    /// <param name="request">The forecast, and the horizon and quantile to explain.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>Signed contributions in the forecast's unit.</returns>
    /// <exception cref="QuantraException">The request was rejected; see its Reason.</exception>
    Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default);

    /// <summary>Explains several numbers of a forecast, for example all of its horizons.</summary>
    /// <param name="request">The forecast, and the horizons and quantiles to explain.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>One attribution per target, in the order of the request.</returns>
    /// <exception cref="QuantraException">The request was rejected; see its Reason.</exception>
    Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default);

    /// <summary>Computes which inputs move a model's forecasts in general, over many instances.</summary>
    /// <param name="request">The instances, and the horizons and quantiles to explain.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>
    /// Intermediate results over all instances so far, one per instance or about a hundred in all; the last one is the final result. An instance
    /// that cannot be explained is counted with its reason. To cancel the rest, stop reading.
    /// </returns>
    /// <exception cref="QuantraException">The request was rejected, or the call failed at any step.</exception>
    /// <exception cref="NotSupportedException">The predictor does not implement this method.</exception>
    IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        GlobalExplanationRequest request,
        CancellationToken cancellationToken = default) =>
        throw new NotSupportedException($"{GetType().Name} does not support global explanations; use QuantraClient, EmbeddedPredictor or ManagedPredictor");

    /// <summary>Lists every served version of every model.</summary>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>One entry per version.</returns>
    /// <exception cref="QuantraException">The call failed; see its Reason.</exception>
    Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default);

    /// <summary>Describes a model: what it reads, what it forecasts and where it came from.</summary>
    /// <param name="model">"NAME", "NAME@VERSION" or "NAME@ALIAS".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The version that the reference resolves to.</returns>
    /// <exception cref="QuantraException">The model or version does not exist; the message lists the existing ones.</exception>
    Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default);
}
