namespace Quantra.Client.Tests;

/// <summary>A predictor that implements only the mandatory members, like fakes of users.</summary>
internal sealed class MinimalPredictor(IStockPredictor predictor) : IStockPredictor
{
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        predictor.PredictAsync(request, cancellationToken);

    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) => predictor.PredictManyAsync(requests, cancellationToken);

    public Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default) =>
        predictor.ExplainAsync(request, cancellationToken);

    public Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default) => predictor.ExplainManyAsync(request, cancellationToken);

    public Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default) =>
        predictor.ListModelsAsync(cancellationToken);

    public Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default) =>
        predictor.GetModelAsync(model, cancellationToken);

    public ValueTask DisposeAsync() => ValueTask.CompletedTask;
}
