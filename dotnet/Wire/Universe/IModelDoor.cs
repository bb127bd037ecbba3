namespace Quantra.Client.Wire;

/// <summary>The way of single calls to a predictor, each until a deadline that it may share with others.</summary>
internal interface IModelDoor
{
    /// <summary>Timeouts and bounds.</summary>
    CallSettings Settings { get; }

    /// <summary>What there is to know of one model.</summary>
    /// <param name="model">To be asked.</param>
    /// <param name="deadline">Of the call.</param>
    /// <param name="cancellationToken">Cancels it.</param>
    Task<V1.GetModelResponse> GetModelAsync(ModelReference model, Deadline deadline, CancellationToken cancellationToken);

    /// <summary>Results of one model, in the order of the requests.</summary>
    /// <param name="model">To be asked.</param>
    /// <param name="requests">About this model.</param>
    /// <param name="deadline">Of the call.</param>
    /// <param name="cancellationToken">Cancels it.</param>
    Task<IReadOnlyList<PredictionResult>> PredictAsync(
        ModelReference model,
        IReadOnlyList<PredictionRequest> requests,
        Deadline deadline,
        CancellationToken cancellationToken);

    /// <summary>Explanations of one forecast, one per target.</summary>
    /// <param name="request">The forecast and the targets.</param>
    /// <param name="deadline">Of the call.</param>
    /// <param name="cancellationToken">Cancels it.</param>
    Task<IReadOnlyList<Attribution>> ExplainAsync(ManyExplanationsRequest request, Deadline deadline, CancellationToken cancellationToken);
}
