namespace Quantra.Client.Testing;

/// <summary>Builds the description of a model from defaults.</summary>
/// <example>
/// <code>
/// ModelInfo model = new ModelInfoBuilder { Name = "stock", Horizons = [1, 5] }.Build();
/// </code>
/// </example>
public sealed record ModelInfoBuilder
{
    internal const string Weights = "0000000000000000000000000000000000000000000000000000000000000000";

    internal static readonly IReadOnlyList<int> DefaultHorizons = [1, 5, 10, 20];

    internal static readonly IReadOnlyList<double> DefaultQuantiles = [0.1, 0.5, 0.9];

    /// <inheritdoc cref="ModelInfo.Name"/>
    /// <value>"stock" by default.</value>
    public string Name { get; init; } = "stock";

    /// <inheritdoc cref="ModelInfo.Version"/>
    /// <value>1 by default.</value>
    public int Version { get; init; } = 1;

    /// <inheritdoc cref="ModelInfo.Aliases"/>
    public IReadOnlyList<string> Aliases { get; init; } = [];

    /// <inheritdoc cref="ModelInfo.IsDefault"/>
    /// <value>True by default.</value>
    public bool IsDefault { get; init; } = true;

    /// <inheritdoc cref="ModelInfo.Kind"/>
    /// <value>"lstm" by default.</value>
    public string Kind { get; init; } = "lstm";

    /// <inheritdoc cref="ModelInfo.Horizons"/>
    /// <value>1, 5, 10 and 20 by default.</value>
    public IReadOnlyList<int> Horizons { get; init; } = DefaultHorizons;

    /// <inheritdoc cref="ModelInfo.Quantiles"/>
    /// <value>0.1, 0.5 and 0.9 by default.</value>
    public IReadOnlyList<double> Quantiles { get; init; } = DefaultQuantiles;

    /// <inheritdoc cref="ModelInfo.Lag"/>
    public int Lag { get; init; }

    /// <inheritdoc cref="ModelInfo.TargetKind"/>
    /// <value>"log-return" by default.</value>
    public string TargetKind { get; init; } = "log-return";

    /// <inheritdoc cref="ModelInfo.EncoderLength"/>
    /// <value>20 by default.</value>
    public int EncoderLength { get; init; } = 20;

    /// <inheritdoc cref="ModelInfo.Lookback"/>
    /// <value>11 by default, which makes 30 bars together with the encoder's sessions.</value>
    public int Lookback { get; init; } = 11;

    /// <inheritdoc cref="ModelInfo.Calendar"/>
    /// <value>"XNYS" by default.</value>
    public string Calendar { get; init; } = "XNYS";

    /// <inheritdoc cref="ModelInfo.Covariates"/>
    public IReadOnlyList<CovariateInfo> Covariates { get; init; } = [];

    /// <inheritdoc cref="ModelInfo.IsPanelModel"/>
    public bool IsPanelModel { get; init; }

    /// <inheritdoc cref="ModelInfo.IsScaledPerHorizon"/>
    public bool IsScaledPerHorizon { get; init; }

    /// <summary>Builds the description. Change its other properties with <c>with</c>.</summary>
    /// <returns>A valid description.</returns>
    /// <exception cref="ArgumentException">Horizons or quantiles are out of order or out of range.</exception>
    public ModelInfo Build()
    {
        Check.Horizons(Horizons);
        Check.Quantiles(Quantiles);
        return new ModelInfo
        {
            Name = Name,
            Version = Version,
            Aliases = Aliases,
            IsDefault = IsDefault,
            Kind = Kind,
            ObservedFeatures = [new("return_1", "log(close / lag(close, 1))", "return since the close before", "log-return")],
            KnownFeatures = [],
            StaticFeatures = [],
            Covariates = Covariates,
            SchemaHash = Weights,
            EncoderLength = EncoderLength,
            Lookback = Lookback,
            BarsNeeded = EncoderLength + Lookback - 1,
            FutureLength = 0,
            Horizons = Horizons,
            Quantiles = Quantiles,
            Lag = Lag,
            TargetKind = TargetKind,
            Calendar = Calendar,
            CalendarEnds = null,
            IsPanelModel = IsPanelModel,
            IsScaledPerHorizon = IsScaledPerHorizon,
            ExplainMethods = [AttributionBuilder.DefaultMethod],
            WeightsHash = Weights,
            CardJson = "{}",
        };
    }
}
