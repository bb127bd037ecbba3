namespace Quantra.Client.Managed;

/// <summary>Forecasts from the folder of a trained model, computed in this process without Python.</summary>
/// <remarks>Thread-safe.</remarks>
public sealed class ManagedPredictor : IStockPredictor
{
    private ManagedPredictor()
    {
    }

    /// <summary>Opens a model's folder, verifies its files and compares its golden instance.</summary>
    /// <param name="folder">Folder of one trained model, such as "models/demo/1".</param>
    /// <param name="cancellationToken">Cancels the loading.</param>
    /// <returns>A predictor.</returns>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: the folder is not an intact model, or this version cannot compute it.</exception>
    public static Task<ManagedPredictor> OpenAsync(string folder, CancellationToken cancellationToken = default)
    {
        ArgumentException.ThrowIfNullOrEmpty(folder);
        cancellationToken.ThrowIfCancellationRequested();
        throw new QuantraError(
            QuantraStatus.FailedPrecondition,
            QuantraReason.ArtifactInvalid,
            "this version of Quantra.Client.Managed cannot compute models yet; use Quantra.Client or Quantra.Client.Embedded").ToException();
    }

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        throw new NotImplementedException();

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) => throw new NotImplementedException();

    /// <inheritdoc/>
    public Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default) =>
        throw new NotImplementedException();

    /// <inheritdoc/>
    public Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default) => throw new NotImplementedException();

    /// <inheritdoc/>
    public Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default) =>
        throw new NotImplementedException();

    /// <inheritdoc/>
    public Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default) =>
        throw new NotImplementedException();

    /// <inheritdoc/>
    public ValueTask DisposeAsync() => ValueTask.CompletedTask;
}
