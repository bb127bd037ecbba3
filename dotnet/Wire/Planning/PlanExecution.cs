namespace Quantra.Client.Wire;

/// <summary>Runs the calls of a plan for one version of a model.</summary>
internal sealed class PlanExecution
{
    private readonly IUnaryTransport _transport;
    private readonly ModelReference _reference;
    private readonly IReadOnlyList<PredictionRequest> _trimmed;
    private readonly bool _isTrimmed;
    private readonly CallPlan _plan;
    private readonly List<(PanelPart Part, IReadOnlyList<string> Symbols, PredictionResult Result)>[] _results;

    public PlanExecution(IUnaryTransport transport, ModelReference reference, IReadOnlyList<PredictionRequest> requests, ServedModel model)
    {
        (_transport, _reference) = (transport, reference);
        _trimmed = [.. requests.Select(model.Trim)];
        _isTrimmed = _trimmed.Zip(requests).Any(pair => !ReferenceEquals(pair.First, pair.Second));
        _plan = CallPlan.Create(_trimmed, model, reference);
        _results = [.. requests.Select(_ => new List<(PanelPart, IReadOnlyList<string>, PredictionResult)>())];
    }

    /// <summary>Whether bars were left out and a refusal may be due to that.</summary>
    public bool MayLackBars => _isTrimmed && AllResults.Any(result => PartMerger.IsUnusable(result.Error));

    private IEnumerable<PredictionResult> AllResults => _results.SelectMany(parts => parts.Select(part => part.Result));

    /// <summary>Whether all forecasts are from this version.</summary>
    public bool AreAllFrom(ServedModel model) =>
        AllResults.All(result => result.Forecast is not { } forecast || model.Matches(forecast.Version, forecast.WeightsHash));

    /// <summary>Makes the calls one after the other.</summary>
    /// <returns>One result per request, in order.</returns>
    /// <exception cref="QuantraException">A call failed. If there are several calls, the message names its symbols.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<IReadOnlyList<PredictionResult>> RunAsync(Deadline deadline, CancellationToken cancellationToken)
    {
        foreach (var call in _plan.Calls)
            await RunCallAsync(call, deadline, cancellationToken).ConfigureAwait(false);
        for (var index = 0; index < _results.Length; index++)
            await RetryUnusablePartsAsync(index, deadline, cancellationToken).ConfigureAwait(false);
        return [.. _results.Select((parts, index) => _plan.Rejected.TryGetValue(index, out var error)
            ? new PredictionResult(_trimmed[index].RequestId, null, error)
            : PartMerger.Merge(_trimmed[index].RequestId, [.. parts.Select(part => (part.Symbols, part.Result))]))];
    }

    private async Task RunCallAsync(IReadOnlyList<PanelPart> call, Deadline deadline, CancellationToken cancellationToken)
    {
        IReadOnlyList<PredictionRequest> requests = [.. call.Select(part => part.Of(_trimmed))];
        IReadOnlyList<string>[] symbols = [.. requests.Select(request => request.Bars?.Symbols ?? request.Window!.Symbols)];
        try
        {
            var results = await PredictAsync(requests, deadline, cancellationToken).ConfigureAwait(false);
            for (var index = 0; index < call.Count; index++)
                _results[call[index].Index].Add((call[index], symbols[index], results[index]));
        }
        catch (QuantraException failure) when (_plan.Calls.Count > 1)
        {
            throw PartMerger.WithSymbols(failure.Error, [.. symbols.SelectMany(list => list)]).ToException(failure);
        }
    }

    /// <summary>Repeats parts without a usable symbol together with a usable one, because then the model gives a refusal per symbol.</summary>
    private async Task RetryUnusablePartsAsync(int index, Deadline deadline, CancellationToken cancellationToken)
    {
        var parts = _results[index];
        if (FindUsableRow(index) is not { } usable || _trimmed[index].Bars is not { } bars)
            return;
        for (var position = 0; position < parts.Count; position++)
        {
            var (part, symbols, result) = parts[position];
            if (!PartMerger.IsUnusable(result.Error))
                continue;
            var request = PanelSlicer.Slice(_trimmed[index], bars, part.Rows with { Extra = usable });
            var again = (await PredictAsync([request], deadline, cancellationToken).ConfigureAwait(false))[0];
            parts[position] = (part, symbols, again.Forecast is { } forecast ? again with { Forecast = PartMerger.RemoveLast(forecast) } : again);
        }
    }

    /// <summary>Returns the row of the first symbol that has a forecast, or null.</summary>
    private int? FindUsableRow(int index)
    {
        foreach (var (part, symbols, result) in _results[index])
        {
            for (var row = 0; result.Forecast is { } forecast && row < symbols.Count; row++)
            {
                if (!forecast.Refusals.ContainsKey(symbols[row]))
                    return part.Rows.First + row;
            }
        }

        return null;
    }

    private async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        IReadOnlyList<PredictionRequest> requests,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var results = await _transport.PredictAsync(_reference, requests, deadline, cancellationToken).ConfigureAwait(false);
        PredictorCalls.CheckCount(results.Count, requests.Count);
        return results;
    }
}
