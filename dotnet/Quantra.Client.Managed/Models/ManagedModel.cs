using System.Runtime.InteropServices;
using System.Security.Cryptography;
using System.Text;

namespace Quantra.Client.Managed;

/// <summary>A loaded version of a model with one network. Thread-safe.</summary>
internal sealed class ManagedModel : IForecastModel
{
    private const string Engine = "managed";

    private readonly INetwork _network;
    private readonly RequestPreparation _bars;
    private readonly WindowPreparation _windows;
    private readonly OutputMap _output;
    private readonly ModelCard _card;
    private readonly byte[] _fingerprint;
    private readonly Universe? _universe;
    private readonly ModelExplainer _explainer;
    private readonly UnusedObjects<CallArrays> _arrays = new();
    private Lazy<ModelExplainer> _checkedExplainer;

    private ManagedModel(string name, int version, ArtifactFiles files)
    {
        var manifest = files.Manifest;
        (Name, Version, WeightsHash, ManifestHash) = (name, version, files.Hash(ArtifactFiles.WeightsFile), files.ManifestHash);
        var target = Target.Read(manifest.Record("target"));
        Pipeline = Pipeline.Read(files, target);
        var network = manifest.Record("network");
        Kind = network.Text("kind");
        _output = OutputMap.Read(manifest, target);
        var universe = Universe.Read(manifest, Kind);
        _network = NetworkFactory.Create(network, Pipeline.Sizes with { Nodes = universe.Length }, target, _output.Levels, files.Tensors(ArtifactFiles.WeightsFile));
        _universe = Universe.Of(_network, universe);
        _card = ModelCard.Read(manifest);
        Training = new(_card, Kind is not ("har" or "garch") && Pipeline.Features.ReadsVolume, _universe is not null, Pipeline.BarsNeeded);
        CheckRepeatedFacts(manifest);
        _explainer = new(Pipeline, _output, Baseline.Read(manifest.Record("baseline"), Pipeline.Sizes, target.Horizons.Length), _network);
        _checkedExplainer = new(_explainer);
        manifest.End();
        (_bars, _windows) = (new(Pipeline), new(Pipeline));
        _fingerprint = Encoding.UTF8.GetBytes(Hash(Encoding.UTF8.GetBytes($"{WeightsHash}|{Pipeline.SchemaHash}|{Engine}|{ManifestHash}")));
    }

    public string Name { get; }

    public int Version { get; }

    public string Kind { get; }

    public string WeightsHash { get; }

    public string ManifestHash { get; }

    public Pipeline Pipeline { get; }

    /// <summary>Levels of the quantiles, ascending.</summary>
    public double[] Levels => _output.Levels;

    /// <summary>Names of the methods of explanations, the default first.</summary>
    public string[] ExplainMethods => _explainer.Methods;

    /// <summary>Rows of the network that one forecast depends on.</summary>
    public int RowsPerWindow => _universe?.Members ?? 1;

    /// <summary>Facts about its training.</summary>
    public TrainingSummary Training { get; }

    /// <summary>Tolerated relative error of the network's arithmetic, from the golden instance.</summary>
    public double Slack { get; private init; }

    /// <summary>Builds a model from its files, and compares its golden instance.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a value is invalid, this version cannot compute the model, or results differ from the recorded ones.</exception>
    public static ManagedModel Load(ArtifactFiles files, string name, int version)
    {
        var golden = GoldenInstance.Read(files);
        var model = new ManagedModel(name, version, files) { Slack = golden.Slack };
        golden.Check(model);
        model._checkedExplainer = new(() => golden.CheckExplanation(model, model._explainer)); // so that programs without explanations start sooner
        return model;
    }

    /// <inheritdoc/>
    public Forecast Predict(PredictionRequest request, DateTimeOffset now)
    {
        if (!_arrays.TryTake(out var arrays))
            arrays = new();
        arrays.Restart();
        var forecast = Forecast(Prepare(request, now, arrays));
        if (arrays.CanBeKept)
            _arrays.Add(arrays);
        return forecast;
    }

    /// <inheritdoc/>
    public Attribution[] Explain(ManyExplanationsRequest request, DateTimeOffset now, CallLimit limit)
    {
        var query = ExplanationQuery.Read(request, Pipeline.Target.Horizons, Levels);
        var method = query.ChooseMethod(ExplainMethods);
        query.CheckCost(RowsPerWindow, CountForecasts(method));
        return Explain(query, method, Prepare(request.Instance, now, new()), limit);
    }

    /// <summary>See <see cref="ModelExplainer.CountForecasts"/>.</summary>
    public int CountForecasts(string method) => _explainer.CountForecasts(method);

    /// <summary>Explains a prepared request; see <see cref="ModelExplainer.Explain"/>.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: the recorded explanation differs.</exception>
    public Attribution[] Explain(ExplanationQuery query, string method, PreparedRequest prepared, CallLimit limit)
    {
        var template = new Attribution
        {
            Symbols = [],
            AsOf = prepared.AsOf == 0 ? null : Day.ToDate(prepared.AsOf),
            Horizon = 0,
            Quantile = 0,
            Method = "",
            Baseline = "",
            Unit = "",
            RowNames = [],
            RowKinds = [],
            PerRow = default,
            Sessions = Array.ConvertAll(prepared.Sessions.ToArray(), Day.ToDate),
            PerTime = null,
            Cells = null,
            Prediction = default,
            BaselinePrediction = default,
            RelativeGap = default,
            Converged = [],
            Nodes = [],
            Model = Name,
            Version = Version,
            WeightsHash = WeightsHash,
            Warnings =
            [
                .. _card.StartNote.Length > 0 ? [_card.StartNote] : Array.Empty<string>(),
                .. method == OcclusionExplainer.Name ? [OcclusionExplainer.NotAdditive] : Array.Empty<string>(),
                .. prepared.Warnings,
            ],
            Internals = [],
            Skill = _card.Skill,
        };
        return _checkedExplainer.Value.Explain(query, method, prepared, template, limit);
    }

    /// <summary>Checks and encodes a request, and adds all warnings.</summary>
    private PreparedRequest Prepare(PredictionRequest request, DateTimeOffset now, CallArrays arrays)
    {
        RawBars? bars = null;
        PreparedRequest prepared;
        try
        {
            if (request.Bars is { } panel)
            {
                try
                {
                    (var trimmed, bars) = Read(request, panel, Pipeline.BarsNeeded, arrays);
                    prepared = _bars.Prepare(trimmed, bars, now);
                }
                catch (QuantraException error) when (ForecastDates.DropWrongSessions(error, Pipeline, request, now) is { } possible)
                {
                    bars = possible;
                    prepared = _bars.Prepare(request, bars, now);
                }
            }
            else
            {
                prepared = _windows.Prepare(request.Window!);
            }
        }
        catch (QuantraException error) when (error.Reason == QuantraReason.CalendarEnded)
        {
            throw WithName(error, Name, Version);
        }

        prepared = PlaceInGraph(prepared);
        var warnings = DataWarnings.Of([Training], bars, prepared.UsableSymbols);
        warnings.AddRange(prepared.Warnings);
        return prepared with { Warnings = DataWarnings.Limit(warnings) };
    }

    /// <summary>Checks the bars of a request. Keeps only the sessions that a forecast depends on, as every predictor does.</summary>
    public static (PredictionRequest Request, RawBars Bars) Read(PredictionRequest request, BarPanel bars, int barsNeeded, CallArrays arrays)
    {
        if (request.Covariates.IsEmpty && request.Covariates.FutureSessions.IsEmpty)
            return (request, BarChecks.Check(bars, barsNeeded, arrays));
        var trimmed = bars.Sessions.Length > barsNeeded && Wire.PanelSlicer.IsConsistent(request, bars)
            ? Wire.PanelSlicer.TakeLast(request, bars, barsNeeded)
            : request;
        return (trimmed, BarChecks.Check(trimmed.Bars!, arrays: arrays));
    }

    /// <summary>The same error with the model's name, because this model's calendar needs an update.</summary>
    public static QuantraException WithName(QuantraException error, string name, int version) =>
        (error.Error with { Message = FormattableString.Invariant($"{name}@{version}: {error.Message}") }).ToException(error);

    /// <summary>Prices [S, H, Q] from last closes [S] and log returns.</summary>
    public static double[] Prices(double[] anchor, double[] returns)
    {
        var (prices, width) = (new double[returns.Length], returns.Length / anchor.Length);
        for (var cell = 0; cell < prices.Length; cell++)
            prices[cell] = anchor[cell / width] * Math.Exp(returns[cell]);
        return prices;
    }

    /// <summary>Places the rows of usable symbols; the others are NaN.</summary>
    public static double[] Scatter(double[] rows, bool[] usable)
    {
        var count = usable.Count(one => one);
        if (count == usable.Length)
            return rows;
        var (width, next) = (rows.Length / count, 0);
        var placed = new double[usable.Length * width];
        for (var symbol = 0; symbol < usable.Length; symbol++)
        {
            var row = placed.AsSpan(symbol * width, width);
            if (usable[symbol])
                rows.AsSpan(width * next++, width).CopyTo(row);
            else
                row.Fill(double.NaN);
        }

        return placed;
    }

    /// <summary>Adds the nodes of the symbols in the network's graph, and warnings about missing ones.</summary>
    public PreparedRequest PlaceInGraph(PreparedRequest prepared) => _universe is null ? prepared : prepared with
    {
        Inputs = prepared.Inputs.AsPanel(_universe.FindNodes(prepared.UsableSymbols)),
        Warnings = [.. prepared.Warnings, .. _universe.Warnings(prepared.UsableSymbols)],
    };

    /// <summary>Checks and encodes a request with bars.</summary>
    public PreparedRequest Prepare(PredictionRequest request, RawBars bars, DateTimeOffset now) => _bars.Prepare(request, bars, now);

    /// <summary>Checks a request with feature windows.</summary>
    public PreparedRequest Prepare(FeatureWindow window) => _windows.Prepare(window);

    /// <summary>Computes the network's output [N, H, Q] in units of each window's scale.</summary>
    public double[] Units(PreparedRequest prepared) => Run(prepared).Units;

    /// <summary>Computes the network's output, with scores [N, H] if it ranks.</summary>
    private (double[] Units, double[]? Scores) Run(PreparedRequest prepared)
    {
        var cells = prepared.Inputs.Rows * Pipeline.Target.Horizons.Length;
        var (units, scores) = (new double[cells * _output.Levels.Length], _universe is null ? null : new double[cells]);
        if (_network is IPanelNetwork panel)
            panel.Rank(prepared.Inputs, units, scores);
        else
            _network.Run(prepared.Inputs, units);
        return (units, scores);
    }

    /// <summary>Forecasts a prepared request.</summary>
    public Forecast Forecast(PreparedRequest prepared)
    {
        var (target, (units, scores)) = (Pipeline.Target, Run(prepared));
        var isReturn = target.Kind == TargetKind.LogReturn;
        _output.Calibrate(units, prepared.Inputs);
        var all = Scatter(units, prepared.Usable);
        var ranking = scores is null ? null : Ranking.Of(Scatter(scores, prepared.Usable), prepared.Symbols, prepared.Usable);
        return new Forecast
        {
            Symbols = [.. prepared.Symbols],
            AsOf = prepared.AsOf == 0 ? null : Day.ToDate(prepared.AsOf),
            TargetSessions = prepared.TargetSessions,
            Lag = target.Lag,
            BaseSession = prepared.BaseSession,
            Horizons = [.. target.Horizons],
            Quantiles = [.. _output.Levels],
            TargetKind = target.KindName,
            Values = all,
            Returns = isReturn ? all : (ReadOnlyMemory<double>?)null,
            // With a lag, returns count from a close that is not known yet, so no price of today can anchor them.
            Prices = isReturn && target.Lag == 0 && prepared.Anchor is { } anchor ? Prices(anchor, all) : (ReadOnlyMemory<double>?)null,
            AnchorPrice = prepared.Anchor is { } closes ? closes : (ReadOnlyMemory<double>?)null,
            Model = Name,
            Version = Version,
            WeightsHash = WeightsHash,
            Warnings = prepared.Warnings,
            ForecastId = ForecastId(prepared),
            Scores = ranking?.Scores,
            Ranks = ranking?.Ranks,
            UniverseHash = ranking?.UniverseHash ?? "",
            Refusals = prepared.Refusals,
            Skill = _card.Skill,
        };
    }

    /// <inheritdoc/>
    public ModelInfo Info(IReadOnlyList<string> aliases, bool isDefault)
    {
        var features = Pipeline.Features;
        return new ModelInfo
        {
            Name = Name,
            Version = Version,
            Aliases = aliases,
            IsDefault = isDefault,
            Kind = Kind,
            ObservedFeatures = [.. features.ObservedDefinitions.Select(Describe)],
            KnownFeatures =
            [
                .. features.KnownDefinitions.Select(Describe),
                .. features.KnownColumns.Skip(features.KnownDefinitions.Length).Select(name =>
                    new FeatureInfo(name, "", "1 if the known covariate has a value; otherwise 0, and the covariate is 0 too", "1")),
            ],
            StaticFeatures =
            [
                .. features.Statics.Numbers.Select(one => new FeatureInfo(
                    one.Name,
                    "",
                    $"(number - {NumberText.General(one.Center)}) / {NumberText.General(one.Scale)}, 0 if unknown; then 1 if unknown, else 0",
                    "standard deviations")),
                .. features.Statics.Categories.Select(one => new FeatureInfo(
                    one.Name,
                    "",
                    $"one column per category, 1 if it applies, else 0: {string.Join(", ", one.Categories)}, then unknown",
                    "1")),
            ],
            Covariates = Pipeline.Covariates,
            SchemaHash = Pipeline.SchemaHash,
            EncoderLength = Pipeline.EncoderLength,
            Lookback = Pipeline.Lookback,
            BarsNeeded = Pipeline.BarsNeeded,
            FutureLength = Pipeline.Target.Reach,
            Horizons = [.. Pipeline.Target.Horizons],
            Quantiles = [.. _output.Levels],
            Lag = Pipeline.Target.Lag,
            TargetKind = Pipeline.Target.KindName,
            Calendar = Pipeline.Calendar.Name,
            CalendarEnds = Day.ToDate(Pipeline.Calendar.Last),
            IsPanelModel = _universe is not null,
            IsScaledPerHorizon = Pipeline.Normaliser.IsPerHorizon,
            ExplainMethods = ExplainMethods,
            WeightsHash = WeightsHash,
            CardJson = _card.Json,
        };

        static FeatureInfo Describe(FeatureDefinition one) => new(one.Name, one.Expression, one.Meaning, one.Unit);
    }

    private void CheckRepeatedFacts(JsonRecord manifest)
    {
        if (manifest.Text("schema_hash") != Pipeline.SchemaHash)
            throw manifest.Refusal("schema_hash", $"is {manifest.Text("schema_hash")}, but its file says {Pipeline.SchemaHash}");
        var (calendar, own) = (manifest.Record("calendar"), Pipeline.Calendar);
        if (calendar.Text("name") != own.Name || calendar.Integer("first") != own.First || calendar.Integer("last") != own.Last)
            throw manifest.Refusal("calendar", $"differs from {ArtifactFiles.CalendarFile}");
        calendar.End();
    }

    /// <summary>Hashes everything that determines the forecast.</summary>
    private string ForecastId(PreparedRequest prepared)
    {
        using var hash = IncrementalHash.CreateHash(HashAlgorithmName.SHA256);
        hash.AppendData(_fingerprint);
        Append(hash, [prepared.AsOf]);
        for (var row = 0; row < prepared.Symbols.Count; row++)
        {
            Append(hash, prepared.Symbols[row].AsSpan());
            Append(hash, "\0".AsSpan());
        }

        var inputs = prepared.Inputs;
        Append<bool>(hash, prepared.Usable);
        Append<float>(hash, inputs.Observed);
        Append<float>(hash, inputs.Known);
        Append<float>(hash, inputs.Static);
        Append<bool>(hash, inputs.Mask);
        Append<double>(hash, inputs.Location);
        Append<double>(hash, inputs.Scale);
        Append<double>(hash, prepared.Anchor);
        Span<byte> digest = stackalloc byte[SHA256.HashSizeInBytes];
        hash.GetHashAndReset(digest);
        return Convert.ToHexString(digest[..8]).ToLowerInvariant();
    }

    private static void Append<T>(IncrementalHash hash, ReadOnlySpan<T> values)
        where T : unmanaged
    {
        if (!BitConverter.IsLittleEndian)
            throw new PlatformNotSupportedException("Quantra.Client.Managed needs a little-endian processor");
        hash.AppendData(MemoryMarshal.AsBytes(values));
    }

    private static string Hash(byte[] data) => Convert.ToHexString(SHA256.HashData(data)).ToLowerInvariant();
}
