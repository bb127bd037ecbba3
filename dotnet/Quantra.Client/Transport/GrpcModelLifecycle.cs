using Google.Protobuf;
using Grpc.Core;
using Quantra.Client.Wire;
using Stub = Quantra.V1.LifecycleService.LifecycleServiceClient;

namespace Quantra.Client.Transport;

/// <summary>Compares models and changes champions over gRPC.</summary>
/// <param name="connection">Connection of the client.</param>
/// <param name="owner">The client, named in the ObjectDisposedException.</param>
internal sealed class GrpcModelLifecycle(ClientConnection connection, object owner) : IModelLifecycle
{
    private readonly Stub _stub = new(connection.Invoker);
    private readonly CallExecutor _executor = connection.Executor.With("quantra.v1.LifecycleService");

    /// <inheritdoc/>
    public async Task<ModelComparison> CompareAsync(
        ModelReference champion,
        ModelReference challenger,
        DateOnly? firstSession = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(champion);
        ArgumentNullException.ThrowIfNull(challenger);
        var request = new V1.CompareVersionsRequest
        {
            Champion = champion.Text,
            Challenger = challenger.Text,
            FirstSession = SessionNumber.OfOrZero(firstSession),
        };
        return LedgerReader.Comparison(await CallAsync(_stub.CompareVersionsAsync, request, challenger.Text, cancellationToken).ConfigureAwait(false));
    }

    /// <inheritdoc/>
    public async Task<PromotionResult> PromoteAsync(
        ModelReference version,
        string reason,
        IReadOnlyList<string>? overrideGates = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(version);
        ArgumentNullException.ThrowIfNull(reason);
        var request = new V1.PromoteVersionRequest { Version = version.Text, Reason = reason, OverrideGates = { overrideGates ?? [] } };
        return LedgerReader.Promotion(await CallAsync(_stub.PromoteVersionAsync, request, version.Text, cancellationToken).ConfigureAwait(false));
    }

    /// <inheritdoc/>
    public async Task<RollbackResult> RollBackAsync(string model, string reason, int? champion = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(reason);
        var request = new V1.RollBackChampionRequest { Model = model, Reason = reason, Champion = champion ?? 0 };
        var response = await CallAsync(_stub.RollBackChampionAsync, request, model, cancellationToken).ConfigureAwait(false);
        return new(response.Champion, response.Previous);
    }

    private Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        TRequest request,
        string model,
        CancellationToken cancellationToken)
        where TRequest : IMessage =>
        connection.Calls.RunAsync(owner, linkedToken => _executor.CallAsync(method, request, model, linkedToken), cancellationToken);
}
