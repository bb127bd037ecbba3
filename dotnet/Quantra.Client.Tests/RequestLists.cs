namespace Quantra.Client.Tests;

/// <summary>Converts between lists and asynchronous streams.</summary>
internal static class RequestLists
{
    /// <summary>Yields the requests asynchronously.</summary>
    public static async IAsyncEnumerable<PredictionRequest> Of(params IEnumerable<PredictionRequest> requests)
    {
        foreach (var request in requests)
        {
            await Task.Yield();
            yield return request;
        }
    }

    /// <summary>Collects all results in order.</summary>
    public static async Task<List<PredictionResult>> ReadAsync(this IAsyncEnumerable<PredictionResult> results, CancellationToken cancellationToken)
    {
        var read = new List<PredictionResult>();
        await foreach (var result in results.WithCancellation(cancellationToken))
            read.Add(result);
        return read;
    }
}
