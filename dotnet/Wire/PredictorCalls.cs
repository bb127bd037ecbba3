using System.Runtime.ExceptionServices;

namespace Quantra.Client.Wire;

/// <summary>What the calls of every predictor have in common, whichever way they reach Python.</summary>
internal static class PredictorCalls
{
    /// <summary>One forecast, asked for as many are.</summary>
    public static async Task<Forecast> PredictAsync(
        IStockPredictor predictor,
        PredictionRequest request,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.Request(request, nameof(request));
        var results = await predictor.PredictManyAsync([request], cancellationToken).ConfigureAwait(false);
        return results[0].GetForecast();
    }

    /// <summary>Calls each model once and puts the results in the order of the requests.</summary>
    /// <param name="requests">In any order of models.</param>
    /// <param name="predict">Answers requests of one model, in their order.</param>
    /// <returns>One result per request; a call that failed is the error of each of its requests.</returns>
    /// <exception cref="QuantraException">Every call failed.</exception>
    public static Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        Func<ModelReference, IReadOnlyList<PredictionRequest>, Task<IReadOnlyList<PredictionResult>>> predict)
    {
        ArgumentNullException.ThrowIfNull(requests);
        for (var index = 0; index < requests.Count; index++)
            NullCheck.Request(requests[index], FormattableString.Invariant($"requests[{index}]"));
        return PredictByModelAsync(requests, predict);
    }

    /// <summary>The explanation of one number, asked for as those of many are.</summary>
    public static async Task<Attribution> ExplainAsync(
        IStockPredictor predictor,
        ExplanationRequest request,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        var attributions = await predictor.ExplainManyAsync(request.ToMany(), cancellationToken).ConfigureAwait(false);
        return attributions[0];
    }

    /// <summary>The explanations of many numbers.</summary>
    /// <param name="request">The forecast, and the horizons and quantiles to explain.</param>
    /// <param name="explain">Answers the request.</param>
    /// <returns>One attribution per target, in the order of the request.</returns>
    /// <exception cref="QuantraException">INTERNAL: there are more attributions than targets, or fewer.</exception>
    public static async Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        Func<ManyExplanationsRequest, Task<IReadOnlyList<Attribution>>> explain)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.Explanations(request);
        var attributions = await explain(request).ConfigureAwait(false);
        if (request.Targets.Count > 0)
            CheckCount(attributions.Count, request.Targets.Count);
        return attributions;
    }

    private static async Task<IReadOnlyList<PredictionResult>> PredictByModelAsync(
        IReadOnlyList<PredictionRequest> requests,
        Func<ModelReference, IReadOnlyList<PredictionRequest>, Task<IReadOnlyList<PredictionResult>>> predict)
    {
        var results = new PredictionResult[requests.Count];
        var calls = Enumerable.Range(0, requests.Count).GroupBy(index => requests[index].Model).Select(FillAsync);
        var failures = await Task.WhenAll(calls).ConfigureAwait(false);
        if (failures is [{ } first, ..] && failures.All(failure => failure is not null))
            ExceptionDispatchInfo.Throw(first);
        return results.AsReadOnly();

        async Task<QuantraException?> FillAsync(IGrouping<ModelReference, int> places)
        {
            try
            {
                var answers = await predict(places.Key, [.. places.Select(index => requests[index])]).ConfigureAwait(false);
                CheckCount(answers.Count, places.Count());
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

    private static void CheckCount(int have, int need)
    {
        if (have == need)
            return;
        var message = FormattableString.Invariant(
            $"the answer has {have} results for {need} requests; use the same version of client and server");
        throw new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message).ToException();
    }
}
