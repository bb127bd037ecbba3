using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>The way of streams and sessions into Python.</summary>
internal sealed class EmbeddedStreams(PythonHost host, PythonDoor door, EmbeddedPredictorOptions options) : IStreamDoor
{
    /// <inheritdoc/>
    public CallSettings Settings { get; } = new()
    {
        Target = "the predictor",
        Timeout = options.Timeout,
        MaxInFlight = options.MaxInFlight,
        MaxAttempts = 1,
        MaxRequestBytes = int.MaxValue,
    };

    /// <inheritdoc/>
    public IStreamWatch Watch { get; } = new UnwatchedStreams();

    /// <inheritdoc/>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the conversation disposes it")]
    public Task<IConversation> OpenAsync(CancellationToken cancellationToken)
    {
        var stream = EmbeddedStream.Open(host, door, "PredictStream", null, cancellationToken);
        return Task.FromResult<IConversation>(new EmbeddedConversation(stream, cancellationToken));
    }

    /// <inheritdoc/>
    public async Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken)
    {
        var request = new V1.GetModelRequest { Model = reference }.ToByteArray();
        var answer = await new EmbeddedCall(host, options.Timeout, options.Timeout).RunAsync(door, "GetModel", request, cancellationToken).ConfigureAwait(false);
        return V1.GetModelResponse.Parser.ParseFrom(answer).Model;
    }

    /// <summary>Makes a call of one request, and hands over each message of the answer as it comes.</summary>
    /// <exception cref="QuantraException">It failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task ExplainGlobalAsync(
        V1.ExplainGlobalRequest request,
        Action<V1.ExplainGlobalProgress> tell,
        CancellationToken cancellationToken)
    {
        var stream = EmbeddedStream.Open(host, door, "ExplainGlobal", options.Timeout, cancellationToken);
        await using var ending = stream.ConfigureAwait(false);
        await stream.SendAsync(request.ToByteArray()).ConfigureAwait(false);
        await stream.EndAsync().ConfigureAwait(false);
        while (await stream.NextAsync(cancellationToken).ConfigureAwait(false) is { } message)
            tell(V1.ExplainGlobalProgress.Parser.ParseFrom(message));
    }
}
