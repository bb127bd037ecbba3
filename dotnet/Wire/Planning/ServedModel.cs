namespace Quantra.Client.Wire;

/// <summary>A version of a model as the predictor describes it.</summary>
/// <param name="Name">Name of the model.</param>
/// <param name="Version">Version, from 1.</param>
/// <param name="WeightsHash">Hash of its weights.</param>
/// <param name="BarsNeeded">Sessions that a forecast depends on. Earlier ones have no effect.</param>
/// <param name="IsPanelModel">Whether the forecast of a symbol depends on the other symbols of its panel.</param>
/// <param name="Limits">How large one request may be.</param>
internal sealed record ServedModel(
    string Name,
    int Version,
    string WeightsHash,
    int BarsNeeded,
    bool IsPanelModel,
    RequestLimits Limits)
{
    /// <summary>Reference to exactly this version.</summary>
    public ModelReference Reference => ModelReference.To(Name, Version);

    /// <exception cref="QuantraException">INTERNAL: the response has no model.</exception>
    public static ServedModel Of(V1.GetModelResponse response, long maxBytes) => response.Model is not { } model
        ? throw InvalidResponse.Create($"it has no model")
        : new(
            model.Name,
            model.Version,
            model.WeightsHash,
            model.BarsNeeded,
            model.IsPanelModel,
            RequestLimits.Of(response.Limits, maxBytes));

    /// <summary>Returns the request with only the sessions that its forecast depends on.</summary>
    /// <remarks>
    /// A model takes the last sessions of the panel before it adjusts prices or computes features. The forecast of a trimmed panel is
    /// therefore the same to the last bit. Inconsistent panels stay unchanged, so that the predictor reports the problem.
    /// </remarks>
    public PredictionRequest Trim(PredictionRequest request) =>
        request.Bars is { } bars && BarsNeeded > 0 && bars.Sessions.Length > BarsNeeded && PanelSlicer.IsConsistent(request, bars)
            ? PanelSlicer.TakeLast(request, bars, BarsNeeded)
            : request;

    public bool Matches(int version, string weightsHash) => version == Version && weightsHash == WeightsHash;

    /// <summary>Whether panels that were trimmed and split for another version suit this one too.</summary>
    public bool CanUsePlanFor(ServedModel planned) => BarsNeeded <= planned.BarsNeeded && IsPanelModel == planned.IsPanelModel;
}
