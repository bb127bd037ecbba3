namespace Quantra.Client;

/// <summary>Extension methods of predictors.</summary>
public static class PredictorExtensions
{
    /// <summary>Forecasts many panels over one call; see <see cref="IStockPredictor.PredictStreamAsync"/>.</summary>
    /// <param name="predictor">The predictor.</param>
    /// <param name="requests">Requests of any models. They are enumerated on pool threads, and no faster than you read results.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>One result per request, in order of completion.</returns>
    /// <exception cref="QuantraException">The call failed; thrown after the results that are ready.</exception>
    public static IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        this IStockPredictor predictor,
        IEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(predictor);
        ArgumentNullException.ThrowIfNull(requests);
        return predictor.PredictStreamAsync(new AsyncRequests(requests), cancellationToken);
    }

    private sealed class AsyncRequests(IEnumerable<PredictionRequest> requests) : IAsyncEnumerable<PredictionRequest>
    {
        public IAsyncEnumerator<PredictionRequest> GetAsyncEnumerator(CancellationToken cancellationToken) => new Each(requests.GetEnumerator());
    }

    private sealed class Each(IEnumerator<PredictionRequest> requests) : IAsyncEnumerator<PredictionRequest>
    {
        public PredictionRequest Current => requests.Current;

        /// <summary>Moves on a pool thread, because a lazy list may block.</summary>
        public ValueTask<bool> MoveNextAsync() => new(Task.Run(requests.MoveNext));

        public ValueTask DisposeAsync()
        {
            requests.Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
