using Google.Protobuf;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>A call of PredictStream into Python.</summary>
internal sealed class EmbeddedConversation(EmbeddedStream stream, CancellationToken cancellationToken) : IConversation
{
    /// <inheritdoc/>
    public Task<bool> SendAsync(V1.PredictStreamRequest request) => stream.SendAsync(request.ToByteArray());

    /// <inheritdoc/>
    public Task EndAsync() => stream.EndAsync();

    /// <inheritdoc/>
    public async Task<V1.PredictStreamResponse?> NextAsync()
    {
        var message = await stream.NextAsync(cancellationToken).ConfigureAwait(false);
        return message is null ? null : V1.PredictStreamResponse.Parser.ParseFrom(message);
    }

    /// <inheritdoc/>
    public ValueTask DisposeAsync() => stream.DisposeAsync();
}
