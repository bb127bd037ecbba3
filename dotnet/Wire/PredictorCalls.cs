using System.Runtime.ExceptionServices;

namespace Quantra.Client.Wire;

/// <summary>Calls that all predictors have in common.</summary>
internal static class PredictorCalls
{
    public static async Task<Forecast> PredictAsync(
        ActiveCalls calls,
        object owner,
        PredictionRequest request,
        PanelPlanner planner,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        var results = await calls.RunAsync(owner, RunAsync, cancellationToken).ConfigureAwait(false);
        return results[0].GetForecast();

        Task<IReadOnlyList<PredictionResult>> RunAsync(CancellationToken linkedToken)
        {
            NullCheck.Request(request, nameof(request));
            return PredictOneModelAsync([request], planner, linkedToken);
        }
    }

    /// <summary>Calls each model once and returns the results in the order of the requests.</summary>
    /// <returns>One result per request. If a call fails, each of its requests gets the error.</returns>
    /// <exception cref="QuantraException">Every call failed.</exception>
    public static Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        ActiveCalls calls,
        object owner,
        IReadOnlyList<PredictionRequest> requests,
        PanelPlanner planner,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(requests);
        // a copy, because the caller may change the list while the call runs
        PredictionRequest[] copy = [.. requests];
        return calls.RunAsync(owner, RunAsync, cancellationToken);

        Task<IReadOnlyList<PredictionResult>> RunAsync(CancellationToken linkedToken)
        {
            for (var index = 0; index < copy.Length; index++)
                NullCheck.Request(copy[index], nameof(requests), index);
            return copy.Length > 0 && Array.TrueForAll(copy, request => request.Model == copy[0].Model)
                ? PredictOneModelAsync(copy, planner, linkedToken)
                : PredictModelsAsync(copy, planner, linkedToken);
        }
    }

    public static async Task<Attribution> ExplainAsync(
        IStockPredictor predictor,
        ExplanationRequest request,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        var attributions = await predictor.ExplainManyAsync(request.ToMany(), cancellationToken).ConfigureAwait(false);
        return attributions[0];
    }

    public static async Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        Func<ManyExplanationsRequest, Task<IReadOnlyList<Attribution>>> explain)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.Explanation(request);
        var attributions = await explain(request).ConfigureAwait(false);
        if (request.Targets.Count > 0)
            CheckCount(attributions.Count, request.Targets.Count);
        return attributions;
    }

    /// <summary>Simulates paths from all bars of the request.</summary>
    /// <param name="calls">Runs the call.</param>
    /// <param name="owner">The predictor, named in the ObjectDisposedException.</param>
    /// <param name="request">The request.</param>
    /// <param name="simulate">Makes the call and passes on each message.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    public static async Task<PathSimulation> SimulatePathsAsync(
        ActiveCalls calls,
        object owner,
        PathSimulationRequest request,
        Func<V1.SimulatePathsRequest, Action<V1.SimulatePathsResponse>, CancellationToken, Task> simulate,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.PathSimulation(request);
        return await calls.RunAsync(owner, RunAsync, cancellationToken).ConfigureAwait(false);

        async Task<PathSimulation> RunAsync(CancellationToken linkedToken)
        {
            var reader = new PathSimulationReader(request.IncludePaths);
            await simulate(RequestWriter.SimulatePaths(request), reader.Add, linkedToken).ConfigureAwait(false);
            return reader.ToSimulation();
        }
    }

    private static async Task<IReadOnlyList<PredictionResult>> PredictOneModelAsync(
        PredictionRequest[] requests,
        PanelPlanner planner,
        CancellationToken cancellationToken)
    {
        var results = await planner.PredictAsync(requests, cancellationToken).ConfigureAwait(false);
        CheckCount(results.Count, requests.Length);
        return results;
    }

    private static async Task<IReadOnlyList<PredictionResult>> PredictModelsAsync(
        PredictionRequest[] requests,
        PanelPlanner planner,
        CancellationToken cancellationToken)
    {
        var results = new PredictionResult[requests.Length];
        var calls = Enumerable.Range(0, requests.Length).GroupBy(index => requests[index].Model).Select(FillAsync);
        var failures = await Task.WhenAll(calls).ConfigureAwait(false);
        if (failures is [{ } first, ..] && failures.All(failure => failure is not null))
            ExceptionDispatchInfo.Throw(first);
        return results.AsReadOnly();

        async Task<QuantraException?> FillAsync(IEnumerable<int> indexes)
        {
            PredictionRequest[] same = [.. indexes.Select(index => requests[index])];
            try
            {
                foreach (var (index, result) in indexes.Zip(await PredictOneModelAsync(same, planner, cancellationToken).ConfigureAwait(false)))
                    results[index] = result;
                return null;
            }
            catch (QuantraException failure)
            {
                foreach (var index in indexes)
                    results[index] = new(requests[index].RequestId, null, failure.Error);
                return failure;
            }
        }
    }

    /// <summary>Throws if the number of results is not the number of requests.</summary>
    public static void CheckCount(int actual, int expected)
    {
        if (actual == expected)
            return;
        var message = FormattableString.Invariant(
            $"the response has {actual} results for {expected} requests; use the same version of client and server");
        throw new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message).ToException();
    }
}
