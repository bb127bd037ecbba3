using System.Buffers;

namespace Quantra.Client.Managed;

/// <summary>The features of a model with their fitted scaling, from features.json.</summary>
/// <remarks>
/// Known features of the calendar are not scaled and never unknown. A known feature of a covariate is scaled, and is 0
/// where it is unknown; an additional column, after all known features, is 1 where it is known.
/// </remarks>
internal sealed class FittedFeatures
{
    private const int MostFeatures = 1000;

    private readonly EvaluationPlan _observed;
    private readonly EvaluationPlan _known;
    private readonly FeatureScaling _scaling;
    private readonly FeatureScaling _knownScaling;
    private readonly int[] _ofCovariates;

    private FittedFeatures(JsonRecord root)
    {
        var set = root.Integer("operator_set");
        if (set is < 1 or > Operator.Set)
            throw root.Refusal("operator_set", $"{set} is unknown; this version has {Operator.Set}");
        FieldFormulas.Check(root.Record("fields"));
        Covariates = CovariateFields.Read(root.Record("covariates"));
        ObservedDefinitions = Array.ConvertAll(root.Records("observed"), FeatureDefinition.Read);
        KnownDefinitions = Array.ConvertAll(root.Records("known"), FeatureDefinition.Read);
        if (ObservedDefinitions.Length == 0)
            throw root.Refusal("observed", "must have at least one feature");
        if (ObservedDefinitions.Length + KnownDefinitions.Length > MostFeatures)
            throw root.Refusal("observed", $"and known are more than {MostFeatures} features");
        string[] observed = [.. FieldFormulas.Observed, .. Covariates.Observed];
        string[] known = [.. FieldFormulas.Known, .. Covariates.Known];
        _observed = new EvaluationPlan(Array.ConvertAll(ObservedDefinitions, one => one.Parse(observed)));
        _known = new EvaluationPlan(Array.ConvertAll(KnownDefinitions, one => one.Parse(known)));
        if (_known.Lookback > 1)
            throw root.Refusal("known", "has a feature that looks back; it may read only its own day");
        if (root.Integer("lookback") != Lookback)
            throw root.Refusal("lookback", $"must be {Lookback}, the look-back of these expressions");
        _ofCovariates = [.. Enumerable.Range(0, KnownDefinitions.Length).Where(k => _known.FieldsOfEach[k].Overlaps(Covariates.Known))];
        Names = Array.ConvertAll(ObservedDefinitions, one => one.Name);
        KnownColumns =
        [
            .. KnownDefinitions.Select(one => one.Name),
            .. _ofCovariates.Select(k => $"{KnownDefinitions[k].Name}_is_known"),
        ];
        _scaling = FeatureScaling.Read(root.Record("scaling"), ObservedDefinitions.Length);
        _knownScaling = FeatureScaling.Read(root.Record("known_scaling"), _ofCovariates.Length);
        Statics = StaticFeatures.Read(root.Record("static"));
        root.End();
        CheckOnce(root, [.. Names, .. KnownColumns, .. Statics.Names]);
        CheckOnce(root, [.. Covariates.Observed, .. Covariates.Known, .. Statics.Names]);
    }

    /// <summary>Definitions of the observed features.</summary>
    public FeatureDefinition[] ObservedDefinitions { get; }

    /// <summary>Definitions of the known features.</summary>
    public FeatureDefinition[] KnownDefinitions { get; }

    /// <summary>Names of the observed features (F), in the order of their values.</summary>
    public string[] Names { get; }

    /// <summary>Names of the columns of known features (K).</summary>
    public string[] KnownColumns { get; }

    /// <summary>[K] index of the known feature that each column belongs to.</summary>
    public int[] KnownGroups => [.. Enumerable.Range(0, KnownDefinitions.Length), .. _ofCovariates];

    /// <summary>The covariates that the features read.</summary>
    public CovariateFields Covariates { get; }

    /// <summary>The static variables.</summary>
    public StaticFeatures Statics { get; }

    /// <summary>Observed values at a bar depend only on this many bars, the bar itself included.</summary>
    public int Lookback => _observed.Lookback;

    /// <summary>Whether an expression reads the volume or the money traded.</summary>
    public bool ReadsVolume => _observed.Fields.Any(name => name is "volume" or "money");

    /// <summary>Fitted scale of each observed feature.</summary>
    public double[] Scale => _scaling.Scale;

    /// <summary>Reads features.json.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a key is unknown, missing or invalid.</exception>
    public static FittedFeatures Read(JsonRecord root) => new(root);

    /// <summary>Computes the scaled observed features of the last sessions.</summary>
    /// <param name="bars">Bars of S symbols.</param>
    /// <param name="covariates">Observed covariates by name, [S, T], or [T] if equal for all symbols.</param>
    /// <param name="last">Number of sessions.</param>
    /// <param name="scaled">[S, last, F] 0 where unknown.</param>
    /// <param name="mask">[S, last, F] whether the value is known.</param>
    /// <exception cref="QuantraException">COVARIATE_MISSING</exception>
    public void Observed(
        AdjustedBars bars, IReadOnlyDictionary<string, double[]> covariates, int last, Span<float> scaled, Span<bool> mask)
    {
        var cells = last * ObservedDefinitions.Length;
        var values = ArrayPool<double>.Shared.Rent(cells);
        var columns = new BarColumns(this, bars, covariates);
        for (var symbol = 0; symbol < bars.Symbols; symbol++)
        {
            columns.Symbol = symbol;
            _observed.Evaluate(columns.Reader, last, values.AsSpan(0, cells));
            _scaling.Apply(values.AsSpan(0, cells), scaled.Slice(symbol * cells, cells), mask.Slice(symbol * cells, cells));
        }
        ArrayPool<double>.Shared.Return(values);
    }

    /// <summary>Computes the observed features of the last sessions before scaling; arguments as in <see cref="Observed"/>.</summary>
    /// <returns>[S, last, F] NaN where bars of the look-back are missing.</returns>
    public double[] Evaluate(AdjustedBars bars, IReadOnlyDictionary<string, double[]> covariates, int last)
    {
        var cells = last * ObservedDefinitions.Length;
        var values = new double[bars.Symbols * cells];
        var columns = new BarColumns(this, bars, covariates);
        for (var symbol = 0; symbol < bars.Symbols; symbol++)
        {
            columns.Symbol = symbol;
            _observed.Evaluate(columns.Reader, last, values.AsSpan(symbol * cells, cells));
        }
        return values;
    }

    /// <summary>Computes the columns of known features.</summary>
    /// <param name="calendar">The calendar's fields by name, [A] each.</param>
    /// <param name="covariates">Known covariates by name, [S, A], or [A] if equal for all symbols.</param>
    /// <param name="rows">S, or 1 if nothing differs between symbols.</param>
    /// <returns>[rows, A, K]</returns>
    /// <exception cref="QuantraException">
    /// COVARIATE_MISSING; CONFIGURATION_INVALID: a feature of the calendar is not finite.
    /// </exception>
    public float[] Known(
        IReadOnlyDictionary<string, double[]> calendar, IReadOnlyDictionary<string, double[]> covariates, out int rows)
    {
        var sessions = calendar["weekday"].Length;
        CheckPresent(Covariates.Known, covariates);
        rows = Covariates.Known.Select(name => covariates[name].Length / sessions).DefaultIfEmpty(1).Max();
        int features = KnownDefinitions.Length, width = KnownColumns.Length;
        var result = new float[rows * sessions * width];
        var values = new double[sessions * features];
        for (var row = 0; row < rows; row++)
        {
            var symbol = row;
            _known.Evaluate(
                name => calendar.TryGetValue(name, out var column) ? column : RowOf(covariates[name], symbol, sessions), sessions, values);
            for (var session = 0; session < sessions; session++)
                WriteKnown(values.AsSpan(session * features, features), result.AsSpan(((row * sessions) + session) * width, width), session);
        }
        return result;
    }

    /// <summary>The error for a missing covariate.</summary>
    public static QuantraException Missing(string name, string message) => new QuantraError(
        QuantraStatus.InvalidArgument,
        QuantraReason.CovariateMissing,
        message,
        new Dictionary<string, string> { ["covariate"] = name }).ToException();

    private static void CheckOnce(JsonRecord root, string[] names)
    {
        if (names.GroupBy(name => name, StringComparer.Ordinal).FirstOrDefault(group => group.Count() > 1) is { } twice)
            throw root.Refusal("observed", $"and the other groups name {twice.Key} twice");
    }

    private static void CheckPresent(string[] names, IReadOnlyDictionary<string, double[]> covariates)
    {
        foreach (var name in names)
        {
            if (!covariates.ContainsKey(name))
                throw Missing(name, $"covariate {name} is missing, but the model reads it; send it with the bars");
        }
    }

    /// <summary>A symbol's values of a column for all symbols [S, T] or for each [T].</summary>
    private static ReadOnlySpan<double> RowOf(double[] column, int symbol, int sessions) =>
        column.AsSpan(column.Length == sessions ? 0 : symbol * sessions, sessions);

    private void WriteKnown(ReadOnlySpan<double> values, Span<float> columns, int session)
    {
        for (var k = 0; k < values.Length; k++)
            columns[k] = (float)values[k];
        for (var k = 0; k < _ofCovariates.Length; k++)
        {
            var feature = _ofCovariates[k];
            columns[feature] = _knownScaling.Apply(k, values[feature], out var isKnown);
            columns[values.Length + k] = isKnown ? 1f : 0f;
        }
        for (var k = 0; k < values.Length; k++)
        {
            if (!double.IsFinite(values[k]) && Array.IndexOf(_ofCovariates, k) < 0)
            {
                throw new QuantraError(
                    QuantraStatus.InvalidArgument,
                    QuantraReason.ConfigurationInvalid,
                    $"known feature {KnownDefinitions[k].Name} is {values[k]} in row {session}; it must be finite").ToException();
            }
        }
    }

    /// <summary>The columns of bars and covariates of one symbol at a time.</summary>
    private sealed class BarColumns
    {
        private readonly AdjustedBars _bars;
        private readonly IReadOnlyDictionary<string, double[]> _covariates;
        private double[]? _masked;

        public BarColumns(FittedFeatures features, AdjustedBars bars, IReadOnlyDictionary<string, double[]> covariates)
        {
            CheckPresent(features.Covariates.Observed, covariates);
            (_bars, _covariates, Reader) = (bars, covariates, Read);
        }

        public EvaluationPlan.ColumnReader Reader { get; }

        public int Symbol { get; set; }

        private ReadOnlySpan<double> Read(string name) => name switch
        {
            "open" => RowOf(_bars.Open),
            "high" => RowOf(_bars.High),
            "low" => RowOf(_bars.Low),
            "close" => RowOf(_bars.Close),
            "volume" => RowOf(_bars.Volume),
            "money" => RowOf(_bars.Money),
            _ => ReadMasked(name),
        };

        private ReadOnlySpan<double> RowOf(double[] column) => column.AsSpan(Symbol * _bars.Sessions, _bars.Sessions);

        /// <summary>A covariate, which like every column is NaN without a bar; until the next one is read.</summary>
        private ReadOnlySpan<double> ReadMasked(string name)
        {
            var target = _masked ??= new double[_bars.Sessions];
            var close = RowOf(_bars.Close);
            FittedFeatures.RowOf(_covariates[name], Symbol, _bars.Sessions).CopyTo(target);
            for (var k = 0; k < target.Length; k++)
            {
                if (double.IsNaN(close[k]))
                    target[k] = double.NaN;
            }
            return target;
        }
    }
}
