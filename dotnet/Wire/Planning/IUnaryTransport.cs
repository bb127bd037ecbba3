namespace Quantra.Client.Wire;

/// <summary>Carries single calls to a predictor. Several calls may share a deadline.</summary>
internal interface IUnaryTransport
{
    CallSettings Settings { get; }

    Task<V1.GetModelResponse> GetModelAsync(ModelReference model, Deadline deadline, CancellationToken cancellationToken);

    /// <summary>Returns the results of one model in the order of the requests.</summary>
    Task<IReadOnlyList<PredictionResult>> PredictAsync(
        ModelReference model,
        IReadOnlyList<PredictionRequest> requests,
        Deadline deadline,
        CancellationToken cancellationToken);

    /// <summary>Returns one attribution per target.</summary>
    Task<IReadOnlyList<Attribution>> ExplainAsync(ManyExplanationsRequest request, Deadline deadline, CancellationToken cancellationToken);
}
