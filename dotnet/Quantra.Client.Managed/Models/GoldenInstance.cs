namespace Quantra.Client.Managed;

/// <summary>The recorded request of an artifact and its results, stage by stage from bars to prices.</summary>
/// <remarks>Comparing only the output could hide errors of earlier stages.</remarks>
internal sealed class GoldenInstance
{
    /// <summary>Upper bound of the recorded float32 error that loosens the tolerance of the network's stages.</summary>
    private const double MostFloat32Error = 1e-4;

    /// <summary>Step of a float32 in units of 1: another order of sums moves outputs by a few of them.</summary>
    private const double LeastSlack = 1e-6;

    private static readonly DateTimeOffset AfterAllSessions = new(9999, 1, 1, 0, 0, 0, TimeSpan.Zero);

    /// <summary>Nodes of the recorded explanation.</summary>
    private const int ExplanationNodes = 32;

    private static readonly string[] NetworkStages =
    [
        "units", "values", "scores", "prices", "attribution_observed", "attribution_known", "attribution_static", "attribution_alone",
        "attribution_ends", "attribution_sum",
    ];

    private static readonly Dictionary<string, (double Absolute, double Relative)> Tolerances = new()
    {
        ["adjusted"] = (0, 1e-12),
        ["features"] = (0, 1e-12),
        ["observed"] = (1e-6, 0),
        ["known"] = (1e-6, 0),
        ["static"] = (1e-6, 0),
        ["mask"] = (0, 0),
        ["location"] = (1e-15, 1e-12),
        ["scale"] = (0, 1e-12),
        ["units"] = (1e-6, 0),
        ["values"] = (1e-6, 0),
        ["scores"] = (1e-6, 0),
        ["as_of_session"] = (0, 0),
        ["target_sessions"] = (0, 0),
        ["prices"] = (0, 1e-6),
        ["anchor_price"] = (0, 0),
        ["attribution_positions"] = (1e-14, 0),
        ["attribution_weights"] = (1e-14, 0),
        ["attribution_observed"] = (1e-7, 1e-4),
        ["attribution_known"] = (1e-7, 1e-4),
        ["attribution_static"] = (1e-7, 1e-4),
        ["attribution_alone"] = (1e-7, 1e-4),
        ["attribution_ends"] = (1e-6, 0),
        ["attribution_sum"] = (1e-6, 1e-4),
    };

    private readonly Dictionary<string, Tensor> _arrays;
    private readonly string[] _symbols;
    private readonly Dictionary<string, string[]> _categories;
    private readonly Dictionary<string, string> _refusals = [];

    /// <param name="files">Files of an artifact or an ensemble.</param>
    /// <param name="slack">See <see cref="Slack"/>; null = that of the recorded float32 error, which an ensemble does not have.</param>
    private GoldenInstance(ArtifactFiles files, double? slack)
    {
        _arrays = files.Tensors(ArtifactFiles.GoldenArraysFile);
        var text = files.Json(ArtifactFiles.GoldenFile);
        _symbols = text.Texts("symbols");
        var categories = text.Record("categories");
        _categories = categories.Keys.ToDictionary(name => name, categories.Texts);
        if (slack is null)
        {
            var refusals = text.Record("refusals");
            _refusals = refusals.Keys.ToDictionary(name => name, refusals.Text);
        }

        Slack = slack ?? Math.Max(Math.Min(4 * text.Number("float32_error"), MostFloat32Error), LeastSlack);
        text.End();
    }

    /// <summary>Tolerated relative error of the network's arithmetic in the stages after it.</summary>
    public double Slack { get; }

    /// <summary>Reads the golden instance of an artifact.</summary>
    public static GoldenInstance Read(ArtifactFiles files) => new(files, null);

    /// <summary>Compares the joint forecast of an ensemble with the recorded one.</summary>
    /// <param name="files">Files of the ensemble.</param>
    /// <param name="slack">Largest slack of the members.</param>
    /// <param name="forecast">Forecasts a request at a time.</param>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a stage differs; the message names it.</exception>
    public static void CheckJoint(ArtifactFiles files, double slack, Func<PredictionRequest, DateTimeOffset, Forecast> forecast)
    {
        var golden = new GoldenInstance(files, slack);
        CheckAccepted(() => golden.CheckForecast(forecast(golden.Request(), AfterAllSessions)));
    }

    /// <summary>Computes every stage with a model and compares it with the recorded one.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a stage differs, or an invalid request does not get the recorded error; the message names it.</exception>
    public void Check(ManagedModel model)
    {
        var request = Request();
        CheckAccepted(() => CheckStages(model, request, BarChecks.Check(request.Bars!)));
        foreach (var (name, spoil) in SpoilRequests(model.Pipeline))
        {
            var (reason, recorded) = (FindReason(model, spoil(request)), _refusals.GetValueOrDefault(name, ""));
            if (reason != recorded)
                throw ArtifactError.Of(ArtifactFiles.GoldenFile, $"golden instance: {name} gives '{reason}', recorded was '{recorded}'");
        }
    }

    private void CheckStages(ManagedModel model, PredictionRequest request, RawBars bars)
    {
        var (pipeline, prepared) = (model.Pipeline, model.PlaceInGraph(model.Prepare(request, bars, AfterAllSessions)));
        var (adjusted, _) = BarAdjustment.Adjust(bars);
        var observed = request.Covariates.Observed.ToDictionary(one => one.Key, one => one.Value.ToArray());
        Compare("adjusted", [.. adjusted.Open, .. adjusted.High, .. adjusted.Low, .. adjusted.Close, .. adjusted.Volume, .. adjusted.Money]);
        Compare("features", pipeline.Features.Evaluate(adjusted, observed, pipeline.EncoderLength), pipeline.Features.Scale);
        var (inputs, symbols) = (prepared.Inputs, prepared.Inputs.Rows);
        Compare("observed", Widen(inputs.Observed));
        Compare("known", Repeat(Widen(inputs.Known), _arrays.TryGetValue("stage.known", out var known) ? known.Count : 0));
        Compare("static", Widen(inputs.Static));
        Compare("mask", Array.ConvertAll(inputs.Mask, cell => cell ? 1.0 : 0.0));
        Compare("location", SelectLevel(inputs.Location));
        Compare("scale", SelectLevel(inputs.Scale));
        Compare("units", model.Units(prepared));
        var forecast = model.Forecast(prepared);
        CheckForecast(forecast);
        if (forecast.Scores is { } scores)
            Compare("scores", scores.ToArray());

        double[] SelectLevel(double[] level) => pipeline.Normaliser.IsPerHorizon
            ? level
            : [.. Enumerable.Range(0, symbols).Select(row => level[row * (level.Length / symbols)])];
    }

    /// <summary>Explains the recorded request and compares the explanation with the recorded one.</summary>
    /// <returns>The explainer.</returns>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a stage differs.</exception>
    public ModelExplainer CheckExplanation(ManagedModel model, ModelExplainer explainer)
    {
        var request = Request();
        var prepared = model.PlaceInGraph(model.Prepare(request, BarChecks.Check(request.Bars!), AfterAllSessions));
        var (rule, rows) = (GaussLegendre.Of(ExplanationNodes), explainer.ExplainMedian(prepared.Inputs, ExplanationNodes));
        Compare("attribution_positions", rule.Positions);
        Compare("attribution_weights", rule.Weights);
        Compare("attribution_ends", [.. rows.SelectMany(row => new[] { row.BaselinePrediction, row.Prediction })]);
        Compare("attribution_observed", [.. rows.SelectMany(row => row.Observed)]);
        Compare("attribution_known", [.. rows.SelectMany(row => row.Known)]);
        Compare("attribution_static", [.. rows.SelectMany(row => row.Static)]);
        Compare("attribution_alone", [.. rows.SelectMany(row => new[] { row.Location, row.Scale, row.Conformal, row.Neighbours })]);
        Compare("attribution_sum", Array.ConvertAll(rows, row => row.Total));
        return explainer;
    }

    private void CheckForecast(Forecast forecast)
    {
        Compare("values", forecast.Values.ToArray());
        Compare("as_of_session", [forecast.AsOf is { } day ? Day.Of(day) : 0]);
        Compare("target_sessions", [.. forecast.TargetSessions.Select(session => (double)Day.Of(session))]);
        if (forecast.Prices is { } prices)
            Compare("prices", prices.ToArray());
        if (forecast.AnchorPrice is { } anchor)
            Compare("anchor_price", anchor.ToArray());
    }

    private static void CheckAccepted(Action check)
    {
        try
        {
            check();
        }
        catch (QuantraException error) when (error.Reason != QuantraReason.ArtifactInvalid)
        {
            throw Error($"is rejected: {error.Message}");
        }
    }

    private static double[] Widen(float[] values) => Array.ConvertAll(values, value => (double)value);

    /// <summary>Repeats known features that all rows share.</summary>
    private static double[] Repeat(double[] values, int count)
    {
        if (values.Length == 0 || count <= values.Length || count % values.Length != 0)
            return values;
        var repeated = new double[count];
        for (var start = 0; start < count; start += values.Length)
            values.CopyTo(repeated, start);
        return repeated;
    }

    private void Compare(string stage, double[] actual, double[]? unit = null)
    {
        if (!_arrays.TryGetValue($"stage.{stage}", out var tensor))
            throw Error($"array 'stage.{stage}' is missing");
        var expected = tensor.ToNumbers();
        if (expected.Length != actual.Length)
            throw Error($"stage {stage} has {actual.Length} values, recorded were {expected.Length}");
        var largest = 0.0;
        foreach (var value in expected)
            largest = double.IsFinite(value) ? Math.Max(largest, Math.Abs(value)) : largest;
        var (absolute, relative) = Tolerances[stage];
        for (var cell = 0; cell < expected.Length; cell++)
        {
            if (!double.IsFinite(expected[cell]) || !double.IsFinite(actual[cell]))
            {
                if (!expected[cell].Equals(actual[cell]))
                    throw Error($"stage {stage} is finite in other cells than recorded");
                continue;
            }

            var size = unit is null ? largest : Math.Max(Math.Abs(expected[cell]), unit[cell % unit.Length]);
            var allowed = absolute + (relative * size);
            if (NetworkStages.Contains(stage))
                allowed = Math.Max(allowed, Slack * largest);
            if (Math.Abs(actual[cell] - expected[cell]) > allowed)
            {
                throw Error(
                    $"stage {stage} is off by {NumberText.General(Math.Abs(actual[cell] - expected[cell]), 3)}, allowed is {NumberText.General(allowed, 3)}; the "
                    + "artifact's parts do not match, or this version of Quantra.Client.Managed computes it differently: use Quantra.Client or Quantra.Client.Embedded");
            }
        }
    }

    private PredictionRequest Request()
    {
        var bars = new BarPanel
        {
            Symbols = _symbols,
            Sessions = Array.ConvertAll(Sessions("bars.sessions"), Day.ToDate),
            Open = Numbers("bars.open"),
            High = Numbers("bars.high"),
            Low = Numbers("bars.low"),
            Close = Numbers("bars.close"),
            Volume = Numbers("bars.volume"),
            SplitRatio = Numbers("bars.split_ratio"),
            CashDividend = Numbers("bars.cash_dividend"),
        };
        return new PredictionRequest("golden", bars)
        {
            Covariates = new Covariates
            {
                Observed = Group("observed"),
                Known = Group("known"),
                Numbers = Group("numbers"),
                FutureSessions = _arrays.ContainsKey("covariates.future_sessions") ? Array.ConvertAll(Sessions("covariates.future_sessions"), Day.ToDate) : default,
                Categories = _categories.ToDictionary(one => one.Key, one => (IReadOnlyList<string>)one.Value),
            },
            AllowIncompleteLastBar = true,
            AcceptSuspectBars = true,
        };

        Dictionary<string, ReadOnlyMemory<double>> Group(string group) => _arrays.Keys
            .Where(name => name.StartsWith($"covariates.{group}.", StringComparison.Ordinal))
            .ToDictionary(name => name[$"covariates.{group}.".Length..], name => (ReadOnlyMemory<double>)Numbers(name));
    }

    private double[] Numbers(string name) => _arrays.TryGetValue(name, out var tensor) ? tensor.ToNumbers() : throw Error($"array '{name}' is missing");

    private int[] Sessions(string name)
    {
        var days = Array.ConvertAll(Numbers(name), day => (int)day);
        foreach (var day in days)
        {
            if (!Day.Exists(day))
                throw Error($"array '{name}' has {day}, which is not a date");
        }

        return days;
    }

    /// <summary>Functions that make the request invalid, by the name under which the reason of the error is recorded.</summary>
    private static IEnumerable<(string Name, Func<PredictionRequest, PredictionRequest> Spoil)> SpoilRequests(Pipeline pipeline)
    {
        yield return ("one bar too few", request => Wire.PanelSlicer.TakeLast(request, request.Bars!, Math.Max(1, pipeline.LeastBars - 1)));
        yield return ("high below low", request => ReplaceBars(request, request.Bars! with { High = SpoilHigh(request.Bars) }, request.Covariates));
        yield return ("a strange covariate", request => ReplaceBars(request, request.Bars!, request.Covariates with
        {
            Categories = new Dictionary<string, IReadOnlyList<string>> { ["no such covariate"] = [.. request.Bars!.Symbols.Select(_ => "")] },
        }));
        yield return ("no covariates", request => ReplaceBars(request, request.Bars!, Covariates.None));
    }

    private static double[] SpoilHigh(BarPanel bars)
    {
        var (high, cell) = (bars.High.ToArray(), (2 * bars.Sessions.Length) - 1);
        high[cell] = bars.Low.Span[cell] / 2;
        return high;
    }

    private static PredictionRequest ReplaceBars(PredictionRequest request, BarPanel bars, Covariates covariates) => new(request.Model, bars)
    {
        Covariates = covariates,
        AllowIncompleteLastBar = true,
        AcceptSuspectBars = true,
    };

    private static string FindReason(ManagedModel model, PredictionRequest request)
    {
        try
        {
            var bars = BarChecks.Check(request.Bars!);
            model.Prepare(request, bars, AfterAllSessions);
            return bars.Impossible.Values.FirstOrDefault()?.Reason ?? "";
        }
        catch (QuantraException error)
        {
            return error.Reason;
        }
    }

    private static QuantraException Error(string problem) => ArtifactError.Of(ArtifactFiles.GoldenArraysFile, $"golden instance: {problem}");
}
