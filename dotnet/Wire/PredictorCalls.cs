using System.Runtime.ExceptionServices;

namespace Quantra.Client.Wire;

/// <summary>What the calls of every predictor have in common, whichever way they reach Python.</summary>
internal static class PredictorCalls
{
    /// <summary>One forecast.</summary>
    /// <param name="calls">Whose end waits for it.</param>
    /// <param name="owner">The predictor.</param>
    /// <param name="request">To be answered.</param>
    /// <param name="planning">Has them answered.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <exception cref="QuantraException">It failed.</exception>
    public static async Task<Forecast> PredictAsync(
        CallsUnderWay calls,
        object owner,
        PredictionRequest request,
        Planning planning,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        var results = await calls.RunAsync(owner, AskAsync, cancellationToken).ConfigureAwait(false);
        return results[0].GetForecast();

        Task<IReadOnlyList<PredictionResult>> AskAsync(CancellationToken either)
        {
            NullCheck.Request(request, nameof(request));
            return PredictOneModelAsync([request], planning, either);
        }
    }

    /// <summary>Calls each model once and puts the results in the order of the requests.</summary>
    /// <param name="calls">Whose end waits for it.</param>
    /// <param name="owner">The predictor.</param>
    /// <param name="requests">In any order of models.</param>
    /// <param name="planning">Has them answered.</param>
    /// <param name="cancellationToken">Cancels the calls.</param>
    /// <returns>One result per request; a call that failed is the error of each of its requests.</returns>
    /// <exception cref="QuantraException">Every call failed.</exception>
    public static Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        CallsUnderWay calls,
        object owner,
        IReadOnlyList<PredictionRequest> requests,
        Planning planning,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(requests);
        // A copy: the rest happens later, and the list is the caller's to change.
        PredictionRequest[] asked = [.. requests];
        return calls.RunAsync(owner, AskAsync, cancellationToken);

        Task<IReadOnlyList<PredictionResult>> AskAsync(CancellationToken either)
        {
            for (var index = 0; index < asked.Length; index++)
                NullCheck.Request(asked[index], nameof(requests), index);
            return asked.Length > 0 && Array.TrueForAll(asked, one => one.Model == asked[0].Model)
                ? PredictOneModelAsync(asked, planning, either)
                : PredictModelsAsync(asked, planning, either);
        }
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

    private static async Task<IReadOnlyList<PredictionResult>> PredictOneModelAsync(
        PredictionRequest[] requests,
        Planning planning,
        CancellationToken cancellationToken)
    {
        var answers = await planning.PredictAsync(requests, cancellationToken).ConfigureAwait(false);
        CheckCount(answers.Count, requests.Length);
        return answers;
    }

    private static async Task<IReadOnlyList<PredictionResult>> PredictModelsAsync(
        PredictionRequest[] requests,
        Planning planning,
        CancellationToken cancellationToken)
    {
        var results = new PredictionResult[requests.Length];
        var calls = Enumerable.Range(0, requests.Length).GroupBy(index => requests[index].Model).Select(FillAsync);
        var failures = await Task.WhenAll(calls).ConfigureAwait(false);
        if (failures is [{ } first, ..] && failures.All(failure => failure is not null))
            ExceptionDispatchInfo.Throw(first);
        return results.AsReadOnly();

        async Task<QuantraException?> FillAsync(IEnumerable<int> places)
        {
            PredictionRequest[] same = [.. places.Select(index => requests[index])];
            try
            {
                foreach (var (index, answer) in places.Zip(await PredictOneModelAsync(same, planning, cancellationToken).ConfigureAwait(false)))
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

    /// <summary>Refuses an answer that is not one result per request.</summary>
    /// <exception cref="QuantraException">INTERNAL.</exception>
    public static void CheckCount(int have, int need)
    {
        if (have == need)
            return;
        var message = FormattableString.Invariant(
            $"the answer has {have} results for {need} requests; use the same version of client and server");
        throw new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message).ToException();
    }
}
