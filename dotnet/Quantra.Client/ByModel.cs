namespace Quantra.Client;

/// <summary>Requests of many models as one call a model.</summary>
internal static class ByModel
{
    /// <summary>Asks each model once and puts the results into the order of the requests.</summary>
    /// <param name="requests">In any order of models.</param>
    /// <param name="predict">Answers requests of one model, in their order.</param>
    public static async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        IReadOnlyList<PredictionRequest> requests,
        Func<ModelReference, IReadOnlyList<PredictionRequest>, Task<IReadOnlyList<PredictionResult>>> predict)
    {
        var results = new PredictionResult[requests.Count];
        await Task.WhenAll(Enumerable.Range(0, requests.Count).GroupBy(index => requests[index].Model).Select(FillAsync))
            .ConfigureAwait(false);
        return results;

        async Task FillAsync(IGrouping<ModelReference, int> places)
        {
            var answers = await predict(places.Key, [.. places.Select(index => requests[index])]).ConfigureAwait(false);
            foreach (var (index, answer) in places.Zip(answers))
                results[index] = answer;
        }
    }
}
