using System.Runtime.ExceptionServices;

namespace Quantra.Client;

/// <summary>Requests of many models as one call a model.</summary>
internal static class ByModel
{
    /// <summary>Asks each model once and puts the results into the order of the requests.</summary>
    /// <param name="requests">In any order of models.</param>
    /// <param name="predict">Answers requests of one model, in their order.</param>
    /// <returns>One result a request; a call that failed is the error of each of its requests.</returns>
    /// <exception cref="QuantraException">Every call failed.</exception>
    public static async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        IReadOnlyList<PredictionRequest> requests,
        Func<ModelReference, IReadOnlyList<PredictionRequest>, Task<IReadOnlyList<PredictionResult>>> predict)
    {
        var results = new PredictionResult[requests.Count];
        var calls = Enumerable.Range(0, requests.Count).GroupBy(index => requests[index].Model).Select(FillAsync);
        var failures = await Task.WhenAll(calls).ConfigureAwait(false);
        if (failures is [{ } first, ..] && failures.All(failure => failure is not null))
            ExceptionDispatchInfo.Throw(first);
        return results;

        async Task<QuantraException?> FillAsync(IGrouping<ModelReference, int> places)
        {
            try
            {
                var answers = await predict(places.Key, [.. places.Select(index => requests[index])]).ConfigureAwait(false);
                AnswerCount.Check(answers.Count, places.Count());
                foreach (var (index, answer) in places.Zip(answers))
                    results[index] = answer;
                return null;
            }
            catch (QuantraException failure)
            {
                foreach (var index in places)
                    results[index] = new(requests[index].RequestId, null, failure.Error);
                return failure;
            }
        }
    }
}
