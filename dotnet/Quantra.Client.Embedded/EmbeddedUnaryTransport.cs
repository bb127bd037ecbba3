using Google.Protobuf;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>Carries single calls into Python.</summary>
/// <param name="settings">Timeouts and limits.</param>
/// <param name="call">Makes a call and returns the serialized response.</param>
internal sealed class EmbeddedUnaryTransport(CallSettings settings, Func<string, IMessage, Deadline, CancellationToken, Task<byte[]>> call)
    : IUnaryTransport
{
    /// <inheritdoc/>
    public CallSettings Settings => settings;

    /// <exception cref="QuantraException">INTERNAL: the bytes are not a valid message.</exception>
    public static TResponse Parse<TResponse>(MessageParser<TResponse> parser, byte[] response)
        where TResponse : IMessage<TResponse>
    {
        try
        {
            return parser.ParseFrom(response);
        }
        catch (InvalidProtocolBufferException error)
        {
            throw InvalidResponse.Create($"its {response.Length} bytes are not a valid message", error);
        }
    }

    /// <inheritdoc/>
    public async Task<V1.GetModelResponse> GetModelAsync(ModelReference model, Deadline deadline, CancellationToken cancellationToken)
    {
        var bytes = await call("GetModel", new V1.GetModelRequest { Model = model.Text }, deadline, cancellationToken).ConfigureAwait(false);
        return Parse(V1.GetModelResponse.Parser, bytes);
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        ModelReference model,
        IReadOnlyList<PredictionRequest> requests,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var bytes = await call("Predict", RequestWriter.Predict(model, requests), deadline, cancellationToken).ConfigureAwait(false);
        return ResponseReader.Results(Parse(V1.PredictResponse.Parser, bytes));
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<Attribution>> ExplainAsync(
        ManyExplanationsRequest request,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var bytes = await call("Explain", RequestWriter.Explain(request), deadline, cancellationToken).ConfigureAwait(false);
        return [.. Parse(V1.ExplainResponse.Parser, bytes).Attributions.Select(ResponseReader.Attribution)];
    }
}
