using Quantra.Client.Wire;
using Stub = Quantra.V1.PredictionService.PredictionServiceClient;

namespace Quantra.Client.Transport;

/// <summary>Carries streams and sessions over gRPC.</summary>
internal sealed class GrpcStreamTransport(Stub stub, CallExecutor executor) : IStreamTransport
{
    /// <inheritdoc/>
    public CallSettings Settings { get; } = executor.Settings;

    /// <inheritdoc/>
    public IStreamTelemetry Telemetry => executor.Telemetry;

    /// <inheritdoc/>
    public async Task<IDuplexCall> OpenAsync(CancellationToken cancellationToken)
    {
        var options = await executor.CreateOptionsAsync(null, cancellationToken).ConfigureAwait(false);
        return new GrpcDuplexCall(stub.PredictStream(options), error => executor.Failure(error, cancellationToken));
    }

    /// <inheritdoc/>
    public async Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken)
    {
        var request = new V1.GetModelRequest { Model = reference };
        return (await executor.CallAsync(stub.GetModelAsync, request, reference, cancellationToken).ConfigureAwait(false)).Model;
    }
}
