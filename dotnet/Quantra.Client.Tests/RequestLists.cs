namespace Quantra.Client.Tests;

/// <summary>Requests that come one after the other, as those of a stream do.</summary>
internal static class RequestLists
{
    /// <summary>All of these, each in a turn of its own.</summary>
    public static async IAsyncEnumerable<PredictionRequest> Of(params IEnumerable<PredictionRequest> requests)
    {
        foreach (var request in requests)
        {
            await Task.Yield();
            yield return request;
        }
    }

    /// <summary>All results, in the order in which they came.</summary>
    public static async Task<List<PredictionResult>> ReadAsync(this IAsyncEnumerable<PredictionResult> results, CancellationToken cancellationToken)
    {
        var read = new List<PredictionResult>();
        await foreach (var result in results.WithCancellation(cancellationToken))
            read.Add(result);
        return read;
    }
}
