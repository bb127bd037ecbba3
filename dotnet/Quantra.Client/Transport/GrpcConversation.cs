using Grpc.Core;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>A call of PredictStream to a server.</summary>
/// <param name="call">Under way.</param>
/// <param name="failure">What to throw for one that failed.</param>
internal sealed class GrpcConversation(
    AsyncDuplexStreamingCall<V1.PredictStreamRequest, V1.PredictStreamResponse> call,
    Func<RpcException, Exception> failure) : IConversation
{
    /// <inheritdoc/>
    public Task<bool> SendAsync(V1.PredictStreamRequest request) => WriteAsync(() => call.RequestStream.WriteAsync(request));

    /// <inheritdoc/>
    public Task EndAsync() => WriteAsync(call.RequestStream.CompleteAsync);

    /// <inheritdoc/>
    public async Task<V1.PredictStreamResponse?> NextAsync()
    {
        try
        {
            return await call.ResponseStream.MoveNext(CancellationToken.None).ConfigureAwait(false) ? call.ResponseStream.Current : null;
        }
        catch (RpcException error)
        {
            throw failure(error);
        }
    }

    /// <inheritdoc/>
    public ValueTask DisposeAsync()
    {
        call.Dispose();
        return ValueTask.CompletedTask;
    }

    /// <summary>Whether a call could be written to: gRPC throws one of these where it has ended, and reading tells why.</summary>
    private static async Task<bool> WriteAsync(Func<Task> write)
    {
        try
        {
            await write().ConfigureAwait(false);
            return true;
        }
        catch (Exception error) when (error is RpcException or InvalidOperationException or IOException or HttpRequestException or OperationCanceledException)
        {
            return false;
        }
    }
}
