namespace Quantra.Client.Wire;

/// <summary>The answers to some requests, asked as one version of a model needs it.</summary>
internal sealed class PlannedAnswers
{
    private readonly IModelDoor _door;
    private readonly ModelReference _reference;
    private readonly IReadOnlyList<PredictionRequest> _cut;
    private readonly bool _isCut;
    private readonly CallPlan _plan;
    private readonly List<(CallPlan.Part Part, IReadOnlyList<string> Symbols, PredictionResult Result)>[] _told;

    /// <param name="door">To the model.</param>
    /// <param name="reference">Of the model, as the program names it.</param>
    /// <param name="requests">In the order of the program.</param>
    /// <param name="model">The version that they are cut for.</param>
    public PlannedAnswers(IModelDoor door, ModelReference reference, IReadOnlyList<PredictionRequest> requests, ServedModel model)
    {
        (_door, _reference) = (door, reference);
        _cut = [.. requests.Select(model.Cut)];
        _isCut = _cut.Zip(requests).Any(both => !ReferenceEquals(both.First, both.Second));
        _plan = CallPlan.Of(_cut, model, reference);
        _told = [.. requests.Select(_ => new List<(CallPlan.Part, IReadOnlyList<string>, PredictionResult)>())];
    }

    /// <summary>Whether bars were left out, and something has no forecast that may lack them.</summary>
    public bool AreDoubtful => _isCut && Results.Any(one => JoinedParts.IsUnusable(one.Error));

    private IEnumerable<PredictionResult> Results => _told.SelectMany(parts => parts.Select(part => part.Result));

    /// <summary>Whether all forecasts are this version's.</summary>
    public bool AreBy(ServedModel model) =>
        Results.All(one => one.Forecast is not { } forecast || model.HasMade(forecast.Version, forecast.WeightsHash));

    /// <summary>Makes the calls, one after the other.</summary>
    /// <param name="deadline">Of all of them.</param>
    /// <param name="cancellationToken">Cancels the present one, and with it all.</param>
    /// <returns>A result per request, in their order.</returns>
    /// <exception cref="QuantraException">A call failed, and with it all; where there are several, the error names the symbols.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<IReadOnlyList<PredictionResult>> AllAsync(Deadline deadline, CancellationToken cancellationToken)
    {
        foreach (var call in _plan.Calls)
            await AskAsync(call, deadline, cancellationToken).ConfigureAwait(false);
        for (var place = 0; place < _told.Length; place++)
            await JudgeEachAsync(place, deadline, cancellationToken).ConfigureAwait(false);
        return [.. _told.Select((parts, place) => _plan.Refused.TryGetValue(place, out var error)
            ? new PredictionResult(_cut[place].RequestId, null, error)
            : JoinedParts.Of(_cut[place].RequestId, [.. parts.Select(part => (part.Symbols, part.Result))]))];
    }

    private async Task AskAsync(IReadOnlyList<CallPlan.Part> call, Deadline deadline, CancellationToken cancellationToken)
    {
        IReadOnlyList<PredictionRequest> asked = [.. call.Select(part => part.Of(_cut))];
        IReadOnlyList<string>[] symbols = [.. asked.Select(one => one.Bars?.Symbols ?? one.Window!.Symbols)];
        try
        {
            var results = await PredictAsync(asked, deadline, cancellationToken).ConfigureAwait(false);
            for (var index = 0; index < call.Count; index++)
                _told[call[index].Place].Add((call[index], symbols[index], results[index]));
        }
        catch (QuantraException failure) when (_plan.Calls.Count > 1)
        {
            throw JoinedParts.Naming(failure.Error, [.. symbols.SelectMany(names => names)]).ToException(failure);
        }
    }

    /// <summary>Asks once more about parts without any usable symbol, beside one that is: so each has a reason of its own.</summary>
    private async Task JudgeEachAsync(int place, Deadline deadline, CancellationToken cancellationToken)
    {
        var parts = _told[place];
        if (UsableRow(place) is not { } usable || _cut[place].Bars is not { } bars)
            return;
        for (var index = 0; index < parts.Count; index++)
        {
            var (part, symbols, result) = parts[index];
            if (!JoinedParts.IsUnusable(result.Error))
                continue;
            var beside = PanelParts.Of(_cut[place], bars, part.Rows with { Beside = usable });
            var again = (await PredictAsync([beside], deadline, cancellationToken).ConfigureAwait(false))[0];
            parts[index] = (part, symbols, again.Forecast is { } both ? again with { Forecast = JoinedParts.WithoutLast(both) } : again);
        }
    }

    /// <summary>The row, in the whole request, of the first symbol that has a forecast.</summary>
    private int? UsableRow(int place)
    {
        foreach (var (part, symbols, result) in _told[place])
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
        IReadOnlyList<PredictionRequest> asked,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var results = await _door.PredictAsync(_reference, asked, deadline, cancellationToken).ConfigureAwait(false);
        PredictorCalls.CheckCount(results.Count, asked.Count);
        return results;
    }
}
