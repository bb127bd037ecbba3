using System.Runtime.CompilerServices;

namespace Quantra.Client.Wire;

/// <summary>Streams that all predictors have in common.</summary>
internal static class PredictorStreams
{
    public static IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IStreamTransport transport,
        ActiveCalls calls,
        object owner,
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(requests);
        return EnumerateAsync(transport, calls, owner, requests, cancellationToken);
    }

    public static IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        ActiveCalls calls,
        object owner,
        GlobalExplanationRequest request,
        PanelPlanner planner,
        Func<V1.ExplainGlobalRequest, Action<V1.ExplainGlobalProgress>, CancellationToken, Task> explain,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.GlobalExplanation(request);
        return AsyncProducer.EnumerateAsync<GlobalExplanationProgress>(
            (items, stoppedToken) => calls.RunAsync(
                owner,
                async linkedToken =>
                {
                    var trimmed = await planner.TrimAsync(request, linkedToken).ConfigureAwait(false);
                    var message = RequestWriter.ExplainGlobal(trimmed);
                    await explain(message, progress => items.TryWrite(ResponseReader.Progress(progress)), linkedToken).ConfigureAwait(false);
                    return true;
                },
                stoppedToken),
            cancellationToken);
    }

    private static async IAsyncEnumerable<PredictionResult> EnumerateAsync(
        IStreamTransport transport,
        ActiveCalls calls,
        object owner,
        IAsyncEnumerable<PredictionRequest> requests,
        [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        PredictionStream? stream = null;
        var results = AsyncProducer.EnumerateAsync<StreamResult>(
            (writer, stoppedToken) =>
            {
                stream = new PredictionStream(transport, requests, writer, calls.Closing);
                return calls.RunAsync(
                    owner,
                    async linkedToken =>
                    {
                        await stream.RunAsync(linkedToken).ConfigureAwait(false);
                        return true;
                    },
                    stoppedToken);
            },
            cancellationToken);
        await foreach (var result in results.ConfigureAwait(false))
            yield return stream!.Read(result);
    }
}
