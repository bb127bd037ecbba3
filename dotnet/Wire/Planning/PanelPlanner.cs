using System.Collections.Concurrent;

namespace Quantra.Client.Wire;

/// <summary>
/// Answers requests with large panels. Learns how many bars a model reads and how large a request may be. Then sends only the last bars,
/// and splits what is still too large into several calls within one deadline. Thread-safe.
/// </summary>
/// <param name="transport">Makes the calls.</param>
/// <param name="models">Models seen so far, shared by all views of a predictor.</param>
internal sealed class PanelPlanner(IUnaryTransport transport, ConcurrentDictionary<string, ServedModel> models)
{
    /// <summary>How many new versions of a model are followed during one call. After that, all bars are sent.</summary>
    private const int MaxAttempts = 3;

    /// <summary>Returns the results of one model in the order of the requests.</summary>
    /// <exception cref="QuantraException">A call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<IReadOnlyList<PredictionResult>> PredictAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken)
    {
        var (reference, deadline) = (requests[0].Model, Deadline.After(transport.Settings.Timeout));
        if (RequestSizeEstimate.IsSmall(requests))
            return await transport.PredictAsync(reference, requests, deadline, cancellationToken).ConfigureAwait(false);
        var model = await GetAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
        for (var attempt = 0; attempt < MaxAttempts; attempt++)
        {
            var execution = new PlanExecution(transport, reference, requests, model);
            var results = await execution.RunAsync(deadline, cancellationToken).ConfigureAwait(false);
            if (execution.AreAllFrom(model) && !execution.MayLackBars)
                return results;
            var current = await FetchAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
            if (execution.AreAllFrom(current) && current.CanUsePlanFor(model))
                return results;
            model = current;
        }

        return await transport.PredictAsync(reference, requests, deadline, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Returns one attribution per target.</summary>
    /// <exception cref="QuantraException">A call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<IReadOnlyList<Attribution>> ExplainAsync(ManyExplanationsRequest request, CancellationToken cancellationToken)
    {
        var (reference, deadline) = (request.Instance.Model, Deadline.After(transport.Settings.Timeout));
        if (RequestSizeEstimate.IsSmall([request.Instance]))
            return await transport.ExplainAsync(request, deadline, cancellationToken).ConfigureAwait(false);
        var model = await GetAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
        for (var attempt = 0; attempt < MaxAttempts; attempt++)
        {
            var (result, rejection) = await ExplainAsync(request, model, deadline, cancellationToken).ConfigureAwait(false);
            if (rejection is null && result.All(one => model.Matches(one.Version, one.WeightsHash)))
                return result;
            var current = await FetchAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
            if (current.CanUsePlanFor(model))
                return rejection is null ? result : throw rejection;
            model = current;
        }

        return await transport.ExplainAsync(request, deadline, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Trims the instances to the bars that the current version reads, and names this version in the request.</summary>
    public async Task<GlobalExplanationRequest> TrimAsync(GlobalExplanationRequest request, CancellationToken cancellationToken)
    {
        if (RequestSizeEstimate.IsSmall(request.Instances))
            return request;
        var deadline = Deadline.After(transport.Settings.Timeout);
        var model = await FetchAsync(request.Instances[0].Model, deadline, cancellationToken).ConfigureAwait(false);
        return request with { Instances = [.. request.Instances.Select(one => model.Trim(one) with { Model = model.Reference })] };
    }

    /// <summary>Explains a forecast. Returns the error if the current version of the model may need more bars.</summary>
    private async Task<(IReadOnlyList<Attribution> Attributions, QuantraException? Rejection)> ExplainAsync(
        ManyExplanationsRequest request,
        ServedModel model,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        var trimmed = request with { Instance = model.Trim(request.Instance) };
        CallPlan.Check(trimmed.Instance, model, "an explanation cannot be split into several calls; send fewer symbols");
        try
        {
            return (await transport.ExplainAsync(trimmed, deadline, cancellationToken).ConfigureAwait(false), null);
        }
        catch (QuantraException rejection) when (PartMerger.IsUnusable(rejection.Error))
        {
            return ([], rejection);
        }
    }

    private async ValueTask<ServedModel> GetAsync(ModelReference reference, Deadline deadline, CancellationToken cancellationToken) =>
        models.TryGetValue(reference.Text, out var model)
            ? model
            : await FetchAsync(reference, deadline, cancellationToken).ConfigureAwait(false);

    private async Task<ServedModel> FetchAsync(ModelReference reference, Deadline deadline, CancellationToken cancellationToken)
    {
        var result = await transport.GetModelAsync(reference, deadline, cancellationToken).ConfigureAwait(false);
        return models[reference.Text] = ServedModel.Of(result, transport.Settings.MaxRequestBytes);
    }
}
