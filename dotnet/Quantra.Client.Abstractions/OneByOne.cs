using System.Globalization;
using System.Runtime.CompilerServices;

namespace Quantra.Client;

/// <summary>What a predictor does that implements no streams.</summary>
internal static class OneByOne
{
    /// <summary>Asks for one forecast after the other.</summary>
    public static IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IStockPredictor predictor,
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(requests);
        return EachAsync(predictor, requests, cancellationToken);
    }

    private static async IAsyncEnumerable<PredictionResult> EachAsync(
        IStockPredictor predictor,
        IAsyncEnumerable<PredictionRequest> requests,
        [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var place = 0;
        await foreach (var request in requests.WithCancellation(cancellationToken).ConfigureAwait(false))
        {
            if (request is null)
                throw new ArgumentException(FormattableString.Invariant($"requests[{place}] is null"), nameof(requests));
            var name = request.RequestId is { Length: > 0 } given ? given : place.ToString(CultureInfo.InvariantCulture);
            yield return await AskAsync(predictor, request, name, cancellationToken).ConfigureAwait(false);
            place++;
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
