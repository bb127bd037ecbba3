namespace Quantra.Client;

/// <summary>Other ways to make the calls of a predictor.</summary>
public static class PredictorExtensions
{
    /// <summary>Forecasts many panels over one call; see <see cref="IStockPredictor.PredictStreamAsync"/>.</summary>
    /// <param name="predictor">Whom to ask.</param>
    /// <param name="requests">Of any models; taken one by one, on threads of the pool, and no faster than results are read.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>One result per request, in the order in which they are ready.</returns>
    /// <exception cref="QuantraException">The whole call failed, after the results that were there.</exception>
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

        /// <summary>Elsewhere, so that nobody waits for a list that makes its caller wait.</summary>
        public ValueTask<bool> MoveNextAsync() => new(Task.Run(requests.MoveNext));

        public ValueTask DisposeAsync()
        {
            requests.Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
