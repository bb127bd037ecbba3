using System.Runtime.CompilerServices;

namespace Quantra.Client.Wire;

/// <summary>What the streams of every predictor have in common, whichever way they reach Python.</summary>
internal static class PredictorStreams
{
    /// <summary>Results of many requests, each as soon as it is there.</summary>
    /// <param name="door">The way to the predictor.</param>
    /// <param name="calls">Those of the predictor.</param>
    /// <param name="owner">The predictor, named where it takes no more calls.</param>
    /// <param name="requests">The caller's.</param>
    /// <param name="cancellationToken">Of the caller.</param>
    public static IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IStreamDoor door,
        CallsUnderWay calls,
        object owner,
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(requests);
        return EachAsync(door, calls, owner, requests, cancellationToken);
    }

    /// <summary>What is known of many instances, as it grows.</summary>
    /// <param name="calls">Those of the predictor.</param>
    /// <param name="owner">The predictor, named where it takes no more calls.</param>
    /// <param name="request">Of the caller.</param>
    /// <param name="planning">Leaves out the bars that do not count.</param>
    /// <param name="explain">Makes the call, and gives each message of its answer.</param>
    /// <param name="cancellationToken">Of the caller.</param>
    public static IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        CallsUnderWay calls,
        object owner,
        GlobalExplanationRequest request,
        Planning planning,
        Func<V1.ExplainGlobalRequest, Action<V1.ExplainGlobalProgress>, CancellationToken, Task> explain,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.GlobalExplanation(request);
        return Produced.EachAsync<GlobalExplanationProgress>(
            (known, stopped) => calls.RunAsync(
                owner,
                async either =>
                {
                    var cut = await planning.CutAsync(request, either).ConfigureAwait(false);
                    var message = RequestWriter.ExplainGlobal(cut);
                    await explain(message, progress => known.TryWrite(ResponseReader.Progress(progress)), either).ConfigureAwait(false);
                    return true;
                },
                stopped),
            cancellationToken);
    }

    private static async IAsyncEnumerable<PredictionResult> EachAsync(
        IStreamDoor door,
        CallsUnderWay calls,
        object owner,
        IAsyncEnumerable<PredictionRequest> requests,
        [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        StreamedPredictions? stream = null;
        var answers = Produced.EachAsync<StreamedAnswer>(
            (ready, stopped) =>
            {
                stream = new StreamedPredictions(door, requests, ready, calls.Closing);
                return calls.RunAsync(
                    owner,
                    async either =>
                    {
                        await stream.RunAsync(either).ConfigureAwait(false);
                        return true;
                    },
                    stopped);
            },
            cancellationToken);
        await foreach (var answer in answers.ConfigureAwait(false))
            yield return stream!.Read(answer);
    }
}
