using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>Carries streams and sessions into Python.</summary>
internal sealed class EmbeddedStreamTransport(PythonHost host, EmbeddedServer server, EmbeddedPredictorOptions options) : IStreamTransport
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
    public IStreamTelemetry Telemetry { get; } = new NullTelemetry();

    /// <inheritdoc/>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the call disposes it")]
    public Task<IDuplexCall> OpenAsync(CancellationToken cancellationToken)
    {
        var stream = EmbeddedStream.Open(host, server, "PredictStream", null, cancellationToken);
        return Task.FromResult<IDuplexCall>(new EmbeddedDuplexCall(stream, cancellationToken));
    }

    /// <inheritdoc/>
    public async Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken)
    {
        var request = new V1.GetModelRequest { Model = reference }.ToByteArray();
        var response = await new EmbeddedCall(host, options.Timeout, options.Timeout).RunAsync(server, "GetModel", request, cancellationToken).ConfigureAwait(false);
        return V1.GetModelResponse.Parser.ParseFrom(response).Model;
    }

    /// <summary>Makes a call with one request and reports each message.</summary>
    /// <exception cref="QuantraException">The call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task ReadAsync<TResponse>(
        string method,
        IMessage request,
        MessageParser<TResponse> parser,
        Action<TResponse> receive,
        TimeSpan timeout,
        CancellationToken cancellationToken)
        where TResponse : IMessage<TResponse>
    {
        var stream = EmbeddedStream.Open(host, server, method, timeout, cancellationToken);
        await using var ending = stream.ConfigureAwait(false);
        await stream.SendAsync(request.ToByteArray()).ConfigureAwait(false);
        await stream.CompleteAsync().ConfigureAwait(false);
        while (await stream.ReadAsync(cancellationToken).ConfigureAwait(false) is { } message)
            receive(EmbeddedUnaryTransport.Parse(parser, message));
    }
}
