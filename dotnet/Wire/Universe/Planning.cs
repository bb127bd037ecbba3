using System.Collections.Concurrent;

namespace Quantra.Client.Wire;

/// <summary>
/// What has large panels answered. It learns once what a model reads and what fits into a call, and again when an answer is another
/// version's. Then the last bars are sent alone, and what is still too large in several calls, within one deadline. Thread-safe.
/// </summary>
/// <param name="door">To the models.</param>
/// <param name="known">Of them, shared by all views of one predictor.</param>
internal sealed class Planning(IModelDoor door, ConcurrentDictionary<string, ServedModel> known)
{
    /// <summary>Versions of a model that may follow each other during one question; after as many, all bars are sent at once.</summary>
    private const int MostTries = 3;

    /// <summary>Results of one model, in the order of the requests.</summary>
    /// <param name="requests">About one model.</param>
    /// <param name="cancellationToken">Cancels all calls.</param>
    /// <exception cref="QuantraException">A call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken)
    {
        var (reference, deadline) = (requests[0].Model, Deadline.After(door.Settings.Timeout));
        if (RequestBytes.AreSmall(requests))
            return await door.PredictAsync(reference, requests, deadline, cancellationToken).ConfigureAwait(false);
        var model = await KnownAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
        for (var attempt = 0; attempt < MostTries; attempt++)
        {
            var answers = new PlannedAnswers(door, reference, requests, model);
            var results = await answers.AllAsync(deadline, cancellationToken).ConfigureAwait(false);
            if (answers.AreBy(model) && !answers.AreDoubtful)
                return results;
            var served = await LearnAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
            if (answers.AreBy(served) && served.IsContentWith(model))
                return results;
            model = served;
        }

        return await door.PredictAsync(reference, requests, deadline, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>The explanations of one forecast, one per target.</summary>
    /// <param name="request">The forecast and the targets.</param>
    /// <param name="cancellationToken">Cancels all calls.</param>
    /// <exception cref="QuantraException">A call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<IReadOnlyList<Attribution>> ExplainAsync(ManyExplanationsRequest request, CancellationToken cancellationToken)
    {
        var (reference, deadline) = (request.Instance.Model, Deadline.After(door.Settings.Timeout));
        if (RequestBytes.AreSmall([request.Instance]))
            return await door.ExplainAsync(request, deadline, cancellationToken).ConfigureAwait(false);
        var model = await KnownAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
        for (var attempt = 0; attempt < MostTries; attempt++)
        {
            var (answer, refusal) = await ExplainAsync(request, model, deadline, cancellationToken).ConfigureAwait(false);
            if (refusal is null && answer.All(one => model.HasMade(one.Version, one.WeightsHash)))
                return answer;
            var served = await LearnAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
            if (served.IsContentWith(model))
                return refusal is null ? answer : throw refusal;
            model = served;
        }

        return await door.ExplainAsync(request, deadline, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>What is asked in general with the bars that it depends on alone, for the version that these are for.</summary>
    /// <param name="request">About one model.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    public async Task<GlobalExplanationRequest> CutAsync(GlobalExplanationRequest request, CancellationToken cancellationToken)
    {
        if (RequestBytes.AreSmall(request.Instances))
            return request;
        var deadline = Deadline.After(door.Settings.Timeout);
        var model = await LearnAsync(request.Instances[0].Model, deadline, cancellationToken).ConfigureAwait(false);
        return request with { Instances = [.. request.Instances.Select(one => model.Cut(one) with { Model = model.Reference })] };
    }

    /// <summary>The explanations, or an error that another version, which reads more bars, may not have.</summary>
    private async Task<(IReadOnlyList<Attribution> Answer, QuantraException? Refusal)> ExplainAsync(
        ManyExplanationsRequest request,
        ServedModel model,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var cut = request with { Instance = model.Cut(request.Instance) };
        CallPlan.Check(cut.Instance, model, "an explanation is one call: send fewer symbols");
        try
        {
            return (await door.ExplainAsync(cut, deadline, cancellationToken).ConfigureAwait(false), null);
        }
        catch (QuantraException refusal) when (JoinedParts.IsUnusable(refusal.Error))
        {
            return ([], refusal);
        }
    }

    private async ValueTask<ServedModel> KnownAsync(ModelReference reference, Deadline deadline, CancellationToken cancellationToken) =>
        known.TryGetValue(reference.Text, out var model)
            ? model
            : await LearnAsync(reference, deadline, cancellationToken).ConfigureAwait(false);

    /// <summary>What the predictor says of a model now.</summary>
    private async Task<ServedModel> LearnAsync(ModelReference reference, Deadline deadline, CancellationToken cancellationToken)
    {
        var answer = await door.GetModelAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
        return known[reference.Text] = ServedModel.Of(answer, door.Settings.MaxRequestBytes);
    }
}
