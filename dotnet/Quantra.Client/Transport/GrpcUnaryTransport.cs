using Quantra.Client.Wire;
using Stub = Quantra.V1.PredictionService.PredictionServiceClient;

namespace Quantra.Client.Transport;

/// <summary>Carries single calls over gRPC.</summary>
internal sealed class GrpcUnaryTransport(Stub stub, CallExecutor executor) : IUnaryTransport
{
    /// <inheritdoc/>
    public CallSettings Settings => executor.Settings;

    /// <inheritdoc/>
    public Task<V1.GetModelResponse> GetModelAsync(ModelReference model, Deadline deadline, CancellationToken cancellationToken) =>
        executor.CallAsync(stub.GetModelAsync, new V1.GetModelRequest { Model = model.Text }, model.Text, cancellationToken, deadline);

    /// <inheritdoc/>
    public async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        ModelReference model,
        IReadOnlyList<PredictionRequest> requests,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var message = RequestWriter.Predict(model, requests);
        return ResponseReader.Results(
            await executor.CallAsync(stub.PredictAsync, message, model.Text, cancellationToken, deadline).ConfigureAwait(false));
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<Attribution>> ExplainAsync(
        ManyExplanationsRequest request,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var (message, model) = (RequestWriter.Explain(request), request.Instance.Model.Text);
        var response = await executor.CallAsync(stub.ExplainAsync, message, model, cancellationToken, deadline).ConfigureAwait(false);
        return [.. response.Attributions.Select(ResponseReader.Attribution)];
    }
}
