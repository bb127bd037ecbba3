namespace Quantra.Client.Wire;

/// <summary>One version of a model, as its predictor told of it.</summary>
/// <param name="Name">Its name.</param>
/// <param name="Version">From 1.</param>
/// <param name="WeightsHash">Of its weights.</param>
/// <param name="BarsNeeded">Sessions that a forecast depends on; those before them change nothing.</param>
/// <param name="IsPanelModel">Whether the forecast of a symbol depends on the others of its panel.</param>
/// <param name="Limits">How large one request may be.</param>
internal sealed record ServedModel(
    string Name,
    int Version,
    string WeightsHash,
    int BarsNeeded,
    bool IsPanelModel,
    RequestLimits Limits)
{
    /// <summary>This version and no other.</summary>
    public ModelReference Reference => ModelReference.To(Name, Version);

    /// <summary>What an answer says.</summary>
    /// <param name="answer">Of the predictor.</param>
    /// <param name="mostBytes">Of a request, that the program lets through.</param>
    /// <exception cref="QuantraException">INTERNAL: there is no model in it.</exception>
    public static ServedModel Of(V1.GetModelResponse answer, long mostBytes) => answer.Model is not { } model
        ? throw Unreadable.Answer($"there is no model in it")
        : new(
            model.Name,
            model.Version,
            model.WeightsHash,
            model.BarsNeeded,
            model.IsPanelModel,
            RequestLimits.Of(answer.Limits, mostBytes));

    /// <summary>The request with the sessions that its forecast depends on, and no others.</summary>
    /// <remarks>
    /// A model reads the last sessions of the panel's own axis: it takes them before it adjusts prices or computes a feature, so
    /// the forecast of these is that of the whole panel, to the last bit. What does not fit together is left as it is, for the
    /// predictor to say so.
    /// </remarks>
    public PredictionRequest Cut(PredictionRequest request) =>
        request.Bars is { } bars && BarsNeeded > 0 && bars.Sessions.Length > BarsNeeded && PanelParts.IsWhole(request, bars)
            ? PanelParts.Last(request, bars, BarsNeeded)
            : request;

    /// <summary>Whether an answer is this version's.</summary>
    public bool HasMade(int version, string weightsHash) => version == Version && weightsHash == WeightsHash;

    /// <summary>Whether panels that were cut and split for another version suffice for this one too.</summary>
    public bool IsContentWith(ServedModel cut) => BarsNeeded <= cut.BarsNeeded && IsPanelModel == cut.IsPanelModel;
}
