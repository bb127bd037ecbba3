using Google.Protobuf;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>The way of single calls into Python.</summary>
/// <param name="settings">Timeouts and bounds.</param>
/// <param name="answer">Makes a call of this name, and gives the bytes of its answer.</param>
internal sealed class EmbeddedModelDoor(CallSettings settings, Func<string, IMessage, Deadline, CancellationToken, Task<byte[]>> answer)
    : IModelDoor
{
    /// <inheritdoc/>
    public CallSettings Settings => settings;

    /// <summary>A message of an answer's bytes.</summary>
    /// <exception cref="QuantraException">INTERNAL: they are none.</exception>
    public static TResponse Parsed<TResponse>(MessageParser<TResponse> parser, byte[] answer)
        where TResponse : IMessage<TResponse>
    {
        try
        {
            return parser.ParseFrom(answer);
        }
        catch (InvalidProtocolBufferException error)
        {
            throw Unreadable.Answer($"its {answer.Length} bytes are no message", error);
        }
    }

    /// <inheritdoc/>
    public async Task<V1.GetModelResponse> GetModelAsync(ModelReference model, Deadline deadline, CancellationToken cancellationToken)
    {
        var bytes = await answer("GetModel", new V1.GetModelRequest { Model = model.Text }, deadline, cancellationToken).ConfigureAwait(false);
        return Parsed(V1.GetModelResponse.Parser, bytes);
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        ModelReference model,
        IReadOnlyList<PredictionRequest> requests,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var bytes = await answer("Predict", RequestWriter.Predict(model, requests), deadline, cancellationToken).ConfigureAwait(false);
        return ResponseReader.Results(Parsed(V1.PredictResponse.Parser, bytes));
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<Attribution>> ExplainAsync(
        ManyExplanationsRequest request,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var bytes = await answer("Explain", RequestWriter.Explain(request), deadline, cancellationToken).ConfigureAwait(false);
        return [.. Parsed(V1.ExplainResponse.Parser, bytes).Attributions.Select(ResponseReader.Attribution)];
    }
}
