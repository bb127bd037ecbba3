namespace Quantra.Client.Testing;

/// <summary>Builds an attribution from defaults. Shapes are consistent and contributions add up to the explained number.</summary>
/// <example>
/// <code>
/// Attribution attribution = new AttributionBuilder { Horizon = 5, Value = (symbol, input) => input == "return_1" ? 0.01 : 0 }.Build();
/// </code>
/// </example>
public sealed record AttributionBuilder
{
    internal const string DefaultMethod = "integrated-gradients";

    /// <inheritdoc cref="Attribution.Symbols"/>
    /// <value>"AAPL" by default.</value>
    public IReadOnlyList<string> Symbols { get; init; } = ["AAPL"];

    /// <summary>Session of the last bar.</summary>
    /// <value>2024-06-28 by default.</value>
    public DateOnly AsOf { get; init; } = new ForecastBuilder().AsOf;

    /// <inheritdoc cref="Attribution.Horizon"/>
    /// <value>5 by default.</value>
    public int Horizon { get; init; } = 5;

    /// <inheritdoc cref="Attribution.Quantile"/>
    /// <value>0.5 by default.</value>
    public double Quantile { get; init; } = 0.5;

    /// <inheritdoc cref="Attribution.Method"/>
    /// <value>"integrated-gradients" by default.</value>
    public string Method { get; init; } = DefaultMethod;

    /// <summary>Names and kinds of the inputs.</summary>
    /// <value>By default return_1 and volume_1 (observed), and the window's scale.</value>
    public IReadOnlyList<(string Name, RowKind Kind)> Inputs { get; init; } =
        [("return_1", RowKind.Observed), ("volume_1", RowKind.Observed), ("scale", RowKind.Scale)];

    /// <summary>Returns the contribution of an input to a symbol's number, in the target's unit.</summary>
    /// <value>By default 0.004, -0.003, 0.002 and so on, with alternating signs and decreasing size.</value>
    public Func<string, string, double>? Value { get; init; }

    /// <summary>The model's number for the baseline, to which contributions are relative.</summary>
    public double Baseline { get; init; }

    /// <inheritdoc cref="Attribution.Unit"/>
    /// <value>"log-return" by default.</value>
    public string Unit { get; init; } = "log-return";

    /// <summary>Number of sessions that the network reads. Detailed contributions are spread evenly over them.</summary>
    /// <value>20 by default.</value>
    public int EncoderLength { get; init; } = 20;

    /// <summary>Detail of the attribution.</summary>
    public ExplanationDetail Detail { get; init; }

    /// <inheritdoc cref="Attribution.Model"/>
    /// <value>"stock" by default.</value>
    public string Model { get; init; } = "stock";

    /// <inheritdoc cref="Attribution.Version"/>
    /// <value>1 by default.</value>
    public int Version { get; init; } = 1;

    /// <inheritdoc cref="Attribution.Warnings"/>
    public IReadOnlyList<string> Warnings { get; init; } = [];

    /// <inheritdoc cref="Attribution.Skill"/>
    public Skill? Skill { get; init; }

    /// <summary>Creates a builder with the shape of a model's attribution for a request.</summary>
    /// <param name="model">The model.</param>
    /// <param name="request">The request for the forecast to explain.</param>
    /// <param name="target">The number to explain.</param>
    /// <returns>A builder with default contributions.</returns>
    public static AttributionBuilder For(ModelInfo model, ManyExplanationsRequest request, ExplanationTarget target)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(request);
        ArgumentNullException.ThrowIfNull(target);
        var forecast = ForecastBuilder.For(model, request.Instance);
        return new AttributionBuilder
        {
            Symbols = request.Symbols.Count > 0 ? request.Symbols : forecast.Symbols,
            AsOf = forecast.AsOf,
            Horizon = target.Horizon,
            Quantile = target.Quantile,
            Method = request.Method.Length > 0 ? request.Method : model.ExplainMethods.FirstOrDefault(DefaultMethod),
            Unit = model.TargetKind,
            EncoderLength = model.EncoderLength,
            Detail = request.Detail,
            Model = model.Name,
            Version = model.Version,
        };
    }

    /// <summary>Builds the attribution. Change its other properties with <c>with</c>.</summary>
    /// <returns>A valid attribution.</returns>
    /// <exception cref="ArgumentException">Symbols or Inputs is empty or has duplicates, or Horizon or Quantile is out of range.</exception>
    public Attribution Build()
    {
        Check.Symbols(Symbols);
        Check.Horizons([Horizon]);
        Check.Quantiles([Quantile]);
        ArgumentNullException.ThrowIfNull(Inputs);
        if (Inputs.Count == 0)
            throw new ArgumentException("Inputs is empty; add at least one input");
        double[][] rows = [.. Symbols.Select(symbol => Inputs.Select((input, index) => ValueOf(symbol, input.Name, index)).ToArray())];
        return new Attribution
        {
            Symbols = Symbols,
            AsOf = AsOf,
            Horizon = Horizon,
            Quantile = Quantile,
            Method = Method,
            Baseline = "train_mean",
            Unit = Unit,
            RowNames = [.. Inputs.Select(input => input.Name)],
            RowKinds = [.. Inputs.Select(input => input.Kind)],
            PerRow = rows.SelectMany(row => row).ToArray(),
            Sessions = Weekdays.UpTo(AsOf, EncoderLength),
            PerTime = Detail == ExplanationDetail.Features ? (ReadOnlyMemory<double>?)null : SplitByTime(rows),
            Cells = Detail == ExplanationDetail.Cells ? Cells(rows) : (ReadOnlyMemory<double>?)null,
            Prediction = rows.Select(row => Baseline + row.Sum()).ToArray(),
            BaselinePrediction = Of(Baseline),
            RelativeGap = Of(0.0),
            Converged = Of(true),
            Nodes = Of(3),
            Model = Model,
            Version = Version,
            WeightsHash = ModelInfoBuilder.Weights,
            Warnings = Warnings,
            Internals = [],
            Skill = Skill,
        };
    }

    private double ValueOf(string symbol, string input, int index) =>
        Value is null ? (index % 2 == 0 ? 0.004 : -0.004) / (1 + (index / 3.0)) : Value(symbol, input);

    private T[] Of<T>(T value) => [.. Enumerable.Repeat(value, Symbols.Count)];

    /// <summary>[S, T] contributions of the inputs with sessions.</summary>
    private double[] SplitByTime(double[][] rows) =>
    [
        .. from row in rows
           let whole = row.Where((_, index) => Inputs[index].Kind is RowKind.Observed or RowKind.Known).Sum()
           from session in Enumerable.Range(0, EncoderLength)
           select whole / EncoderLength,
    ];

    /// <summary>[S, T, F] contributions of the observed inputs.</summary>
    private double[] Cells(double[][] rows) =>
    [
        .. from row in rows
           from session in Enumerable.Range(0, EncoderLength)
           from index in Enumerable.Range(0, Inputs.Count)
           where Inputs[index].Kind == RowKind.Observed
           select row[index] / EncoderLength,
    ];
}
