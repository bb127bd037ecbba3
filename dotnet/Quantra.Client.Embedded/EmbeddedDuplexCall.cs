using Google.Protobuf;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>A PredictStream call into Python.</summary>
internal sealed class EmbeddedDuplexCall(EmbeddedStream stream, CancellationToken cancellationToken) : IDuplexCall
{
    /// <inheritdoc/>
    public Task<bool> SendAsync(V1.PredictStreamRequest request) => stream.SendAsync(request.ToByteArray());

    /// <inheritdoc/>
    public Task CompleteAsync() => stream.CompleteAsync();

    /// <inheritdoc/>
    public async Task<V1.PredictStreamResponse?> ReadAsync()
    {
        var message = await stream.ReadAsync(cancellationToken).ConfigureAwait(false);
        return message is null ? null : V1.PredictStreamResponse.Parser.ParseFrom(message);
    }

    /// <inheritdoc/>
    public ValueTask DisposeAsync() => stream.DisposeAsync();
}
