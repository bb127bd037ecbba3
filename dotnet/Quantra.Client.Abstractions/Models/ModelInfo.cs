namespace Quantra.Client;

/// <summary>A version of a model: what it reads, what it forecasts and where it came from.</summary>
public sealed record ModelInfo
{
    /// <summary>The model's name.</summary>
    public required string Name { get; init; }

    /// <summary>Its version, from 1.</summary>
    public required int Version { get; init; }

    /// <summary>Aliases of this version.</summary>
    public required IReadOnlyList<string> Aliases { get; init; }

    /// <summary>Whether the name without a version refers to this version.</summary>
    public required bool IsDefault { get; init; }

    /// <summary>The kind of network, for example "lstm".</summary>
    public required string Kind { get; init; }

    /// <summary>Features of the past.</summary>
    public required IReadOnlyList<FeatureInfo> ObservedFeatures { get; init; }

    /// <summary>Features that are also known of the future.</summary>
    public required IReadOnlyList<FeatureInfo> KnownFeatures { get; init; }

    /// <summary>Static features.</summary>
    public required IReadOnlyList<FeatureInfo> StaticFeatures { get; init; }

    /// <summary>Covariates to send with the bars: exactly these.</summary>
    public required IReadOnlyList<CovariateInfo> Covariates { get; init; }

    /// <summary>Hash of the features, for <see cref="FeatureWindow.SchemaHash"/>.</summary>
    public required string SchemaHash { get; init; }

    /// <summary>Number of sessions that the network reads.</summary>
    public required int EncoderLength { get; init; }

    /// <summary>Number of bars that the features read, including the bar itself.</summary>
    public required int Lookback { get; init; }

    /// <summary>Smallest number of bars to send.</summary>
    public required int BarsNeeded { get; init; }

    /// <summary>Sessions after the last bar that known features cover.</summary>
    public required int FutureLength { get; init; }

    /// <summary>Forecast horizons in trading days.</summary>
    public required IReadOnlyList<int> Horizons { get; init; }

    /// <summary>Forecast quantiles, each in (0, 1).</summary>
    public required IReadOnlyList<double> Quantiles { get; init; }

    /// <summary>0: returns count from the last close. 1: from the close of the next session.</summary>
    public required int Lag { get; init; }

    /// <summary>"log-return" or "log-volatility".</summary>
    public required string TargetKind { get; init; }

    /// <summary>Exchange code of the model's calendar; "24/7" for every day of the week, "weekdays" if the exchange is unknown.</summary>
    public required string Calendar { get; init; }

    /// <summary>Last day that the calendar covers; null if it has no end.</summary>
    public required DateOnly? CalendarEnds { get; init; }

    /// <summary>Whether the model looks across the symbols of a panel.</summary>
    public required bool IsPanelModel { get; init; }

    /// <summary>Whether windows need a location and a scale for each horizon, instead of one for all.</summary>
    public required bool IsScaledPerHorizon { get; init; }

    /// <summary>Explanation methods that the model has, for example "integrated-gradients"; empty for an ensemble whose members have different ones.</summary>
    public required IReadOnlyList<string> ExplainMethods { get; init; }

    /// <summary>SHA-256 of the model's weights.</summary>
    public required string WeightsHash { get; init; }

    /// <summary>Model card as JSON: data, splits, training recipe, and scores on held-out days with those of the baselines.</summary>
    public required string CardJson { get; init; }

    /// <inheritdoc/>
    public bool Equals(ModelInfo? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@1 (lstm): log-return in 1, 5 days, quantiles 0.1, 0.5, 0.9; needs 93 bars".</returns>
    public override string ToString()
    {
        var (horizons, quantiles) = (MessageFormat.Numbers(Horizons), MessageFormat.Numbers(Quantiles));
        return FormattableString.Invariant(
            $"{Name}@{Version} ({Kind}): {TargetKind} in {horizons} days, quantiles {quantiles}; needs {BarsNeeded} bars");
    }

    private object?[] Parts() =>
    [
        Name,
        Version,
        ValueEquality.Of(Aliases),
        IsDefault,
        Kind,
        ValueEquality.Of(ObservedFeatures),
        ValueEquality.Of(KnownFeatures),
        ValueEquality.Of(StaticFeatures),
        ValueEquality.Of(Covariates),
        SchemaHash,
        EncoderLength,
        Lookback,
        BarsNeeded,
        FutureLength,
        ValueEquality.Of(Horizons),
        ValueEquality.Of(Quantiles),
        Lag,
        TargetKind,
        Calendar,
        CalendarEnds,
        IsPanelModel,
        IsScaledPerHorizon,
        ValueEquality.Of(ExplainMethods),
        WeightsHash,
        CardJson,
    ];
}
