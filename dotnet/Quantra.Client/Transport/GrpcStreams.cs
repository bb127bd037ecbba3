using Quantra.Client.Wire;
using Stub = Quantra.V1.PredictionService.PredictionServiceClient;

namespace Quantra.Client.Transport;

/// <summary>The way of streams and sessions to a server.</summary>
/// <param name="stub">Of the service.</param>
/// <param name="caller">Makes its calls.</param>
internal sealed class GrpcStreams(Stub stub, Caller caller) : IStreamDoor
{
    /// <inheritdoc/>
    public CallSettings Settings { get; } = caller.Settings;

    /// <inheritdoc/>
    public IStreamWatch Watch => caller.Watch;

    /// <inheritdoc/>
    public async Task<IConversation> OpenAsync(CancellationToken cancellationToken)
    {
        var options = await caller.OptionsAsync(null, cancellationToken).ConfigureAwait(false);
        return new GrpcConversation(stub.PredictStream(options), error => caller.Failure(error, cancellationToken));
    }

    /// <inheritdoc/>
    public async Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken)
    {
        var request = new V1.GetModelRequest { Model = reference };
        return (await caller.CallAsync(stub.GetModelAsync, request, reference, cancellationToken).ConfigureAwait(false)).Model;
    }
}
