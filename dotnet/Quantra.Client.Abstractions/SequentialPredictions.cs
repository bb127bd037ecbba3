using System.Globalization;
using System.Runtime.CompilerServices;

namespace Quantra.Client;

/// <summary>Default implementation of streams.</summary>
internal static class SequentialPredictions
{
    /// <summary>Makes one prediction after the other.</summary>
    public static IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IStockPredictor predictor,
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(requests);
        return PredictEachAsync(predictor, requests, cancellationToken);
    }

    private static async IAsyncEnumerable<PredictionResult> PredictEachAsync(
        IStockPredictor predictor,
        IAsyncEnumerable<PredictionRequest> requests,
        [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        // As in every predictor, the caller's enumeration runs on the pool and never needs the reader's thread.
        var source = requests.GetAsyncEnumerator(cancellationToken);
        try
        {
            for (var index = 0; await Task.Run(() => source.MoveNextAsync().AsTask(), CancellationToken.None).ConfigureAwait(false); index++)
            {
                var request = source.Current
                    ?? throw new ArgumentException(FormattableString.Invariant($"requests[{index}] is null"), nameof(requests));
                var name = request.RequestId is { Length: > 0 } id ? id : index.ToString(CultureInfo.InvariantCulture);
                yield return await AskAsync(predictor, request, name, cancellationToken).ConfigureAwait(false);
            }
        }
        finally
        {
            await Task.Run(() => source.DisposeAsync().AsTask(), CancellationToken.None).ConfigureAwait(false);
        }
    }

    private static async Task<PredictionResult> AskAsync(
        IStockPredictor predictor,
        PredictionRequest request,
        string name,
        CancellationToken cancellationToken)
    {
        try
        {
            return new(name, await predictor.PredictAsync(request, cancellationToken).ConfigureAwait(false), null);
        }
        catch (QuantraException failure)
        {
            return new(name, null, failure.Error);
        }
    }
}
