using Grpc.Core;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>A PredictStream call to a server.</summary>
/// <param name="call">The gRPC call.</param>
/// <param name="toException">Converts the error of a failed call.</param>
internal sealed class GrpcDuplexCall(
    AsyncDuplexStreamingCall<V1.PredictStreamRequest, V1.PredictStreamResponse> call,
    Func<RpcException, Exception> toException) : IDuplexCall
{
    /// <inheritdoc/>
    public Task<bool> SendAsync(V1.PredictStreamRequest request) => WriteAsync(() => call.RequestStream.WriteAsync(request));

    /// <inheritdoc/>
    public Task CompleteAsync() => WriteAsync(call.RequestStream.CompleteAsync);

    /// <inheritdoc/>
    public async Task<V1.PredictStreamResponse?> ReadAsync()
    {
        try
        {
            return await call.ResponseStream.MoveNext(CancellationToken.None).ConfigureAwait(false) ? call.ResponseStream.Current : null;
        }
        catch (RpcException error)
        {
            throw toException(error);
        }
    }

    /// <inheritdoc/>
    public ValueTask DisposeAsync()
    {
        call.Dispose();
        return ValueTask.CompletedTask;
    }

    /// <summary>Writes to the call. Returns false if the call has ended; reading from it throws the reason.</summary>
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
