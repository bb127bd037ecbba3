using System.Security.Cryptography;
using System.Text;

namespace Quantra.Client.Managed;

/// <summary>A loaded version of a model with several networks, which forecast as one. Thread-safe.</summary>
internal sealed class EnsembleModel : IForecastModel
{
    private const string DifferentWindows =
        "the members of this ensemble read different windows: their features, fitted numbers, encoder lengths or normalisers differ; send bars, from which "
        + "each member computes its own";

    private readonly EnsembleManifest _manifest;
    private readonly IReadOnlyList<EnsembleMember> _entries;
    private readonly ManagedModel[] _members;

    /// <summary>For each member, the index of the first one that reads the same inputs.</summary>
    private readonly int[] _sources;

    /// <summary>The members that compute inputs. The one that needs the most bars comes first: its error states how many the ensemble needs.</summary>
    private readonly int[] _preparing;
    private readonly CovariateInfo[] _covariates;
    private readonly TrainingSummary[] _training;

    /// <summary>The methods of explanations that all members have, the default first.</summary>
    private readonly string[] _methods;

    private EnsembleModel(string name, int version, ArtifactFiles files, EnsembleManifest manifest, ManagedModel[] members)
    {
        (Name, Version, ManifestHash, _entries, _manifest, _members) = (name, version, files.ManifestHash, files.Members, manifest, members);
        _sources = Array.ConvertAll(members, member => Array.FindIndex(members, other => other.Pipeline.Recipe == member.Pipeline.Recipe));
        _preparing = [.. _sources.Distinct().OrderByDescending(index => members[index].Pipeline.BarsNeeded)];
        _covariates = [.. members.SelectMany(member => member.Pipeline.Covariates).DistinctBy(need => need.Name, StringComparer.Ordinal)];
        _training = Array.ConvertAll(members, member => member.Training);
        _methods = Array.FindAll(members[0].ExplainMethods, method => Array.TrueForAll(members, member => member.ExplainMethods.Contains(method)));
        var lines = members.Select((member, k) => (_entries[k].Name, Line: $"{member.WeightsHash}  {_entries[k].Name}\n")).OrderBy(one => one.Name, StringComparer.Ordinal);
        WeightsHash = Hash(string.Concat(lines.Select(one => one.Line)));
    }

    public string Name { get; }

    public int Version { get; }

    public string Kind => "ensemble";

    public string ManifestHash { get; }

    /// <summary>SHA-256 over the names and weights of the members.</summary>
    public string WeightsHash { get; }

    private Pipeline LongestPipeline => _members[_preparing[0]].Pipeline;

    private int BarsNeeded => LongestPipeline.BarsNeeded;

    /// <summary>Reads the members of an ensemble, and compares all golden instances.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a member is damaged, missing or replaced, the message names it; or the members do not fit together.</exception>
    public static EnsembleModel Load(string folder, ArtifactFiles files, string name, int version)
    {
        var manifest = EnsembleManifest.Read(files);
        ManagedModel[] members = [.. files.Members.Select(entry => LoadMember(folder, entry, $"{name}/{entry.Name}", version))];
        manifest.Check(files.Members, members);
        var ensemble = new EnsembleModel(name, version, files, manifest, members);
        GoldenInstance.CheckJoint(files, members.Max(member => member.Slack), ensemble.Predict);
        return ensemble;
    }

    /// <inheritdoc/>
    public Forecast Predict(PredictionRequest request, DateTimeOffset now) => Forecast(Prepare(request, now));

    /// <inheritdoc/>
    public Attribution[] Explain(ManyExplanationsRequest request, DateTimeOffset now, CallLimit limit)
    {
        var query = ExplanationQuery.Read(request, _manifest.Target.Horizons, _manifest.Levels);
        var method = query.ChooseMethod(_methods);
        query.CheckCost(_members.Sum(member => member.RowsPerWindow), _members.Max(member => member.CountForecasts(method)));
        var prepared = Prepare(request.Instance, now);
        var explained = _members.Select((member, k) => Explain(query, method, member, _entries[k], prepared.Members[k], limit)).ToArray();
        var forecast = Forecast(prepared);
        var (names, places) = (_entries.Select(entry => entry.Name).ToArray(), new Dictionary<string, int>(StringComparer.Ordinal));
        for (var row = 0; row < forecast.Symbols.Count; row++)
            places[forecast.Symbols[row]] = row;
        return [.. query.Points.Select((point, index) =>
        {
            Attribution[] members = Array.ConvertAll(explained, attributions => attributions[index]);
            int[] cells = [.. members[0].Symbols.Select(symbol => (places[symbol] * forecast.Horizons.Count) + point.Horizon)];
            return EnsembleAttribution.Combine(names, members, new EnsembleAttribution.Point(
                Array.ConvertAll(cells, cell => forecast.Values.Span[(cell * forecast.Quantiles.Count) + point.Quantile]),
                Array.ConvertAll(cells, cell => prepared.Scale[cell] * _manifest.Target.Spread()[point.Horizon]),
                query.Tolerance,
                _manifest.SelectWeights(point.Quantile))) with
            {
                Model = Name,
                Version = Version,
                WeightsHash = WeightsHash,
                Warnings = method == OcclusionExplainer.Name ? [OcclusionExplainer.NotAdditive, .. forecast.Warnings] : forecast.Warnings,
                Skill = _manifest.Card.Skill,
                Refusals = members[0].Symbols.Where(prepared.Refusals.ContainsKey).ToDictionary(symbol => symbol, symbol => prepared.Refusals[symbol]),
            };
        })];
    }

    /// <inheritdoc/>
    public ModelInfo Info(IReadOnlyList<string> aliases, bool isDefault)
    {
        ModelInfo[] infos = Array.ConvertAll(_members, member => member.Info([], false));
        string[] hashes = Array.ConvertAll(infos, info => info.SchemaHash);
        var longest = infos.Max(info => info.EncoderLength);
        return infos[0] with
        {
            Name = Name,
            Version = Version,
            Aliases = aliases,
            IsDefault = isDefault,
            Kind = Kind,
            ObservedFeatures = Merge(info => info.ObservedFeatures),
            KnownFeatures = Merge(info => info.KnownFeatures),
            StaticFeatures = Merge(info => info.StaticFeatures),
            Covariates = _covariates,
            SchemaHash = hashes.Distinct().Count() == 1 ? hashes[0] : Hash(string.Concat(hashes)),
            EncoderLength = longest,
            Lookback = BarsNeeded - longest + 1,
            BarsNeeded = BarsNeeded,
            IsPanelModel = infos.Any(info => info.IsPanelModel),
            IsScaledPerHorizon = infos.Any(info => info.IsScaledPerHorizon),
            CalendarEnds = infos.Min(info => info.CalendarEnds),
            ExplainMethods = _methods,
            WeightsHash = WeightsHash,
            CardJson = _manifest.DescribeCard(_entries, infos),
        };

        FeatureInfo[] Merge(Func<ModelInfo, IEnumerable<FeatureInfo>> features) => [.. infos.SelectMany(features).DistinctBy(one => one.Name, StringComparer.Ordinal)];
    }

    private static ManagedModel LoadMember(string folder, EnsembleMember entry, string name, int version)
    {
        var path = ArtifactFiles.PathOf(entry.Name);
        if (!Directory.Exists(Path.Combine(folder, path)))
            throw ArtifactError.Of(path, "the member is missing");
        ArtifactFiles files;
        try
        {
            files = ArtifactFiles.Read(Path.Combine(folder, path));
            if (files.Members.Count > 0)
                throw ArtifactError.Of(ArtifactFiles.ManifestFile, "is an ensemble, which cannot be the member of another one");
            if (files.ManifestHash != entry.ManifestHash)
                throw ArtifactError.Of(ArtifactFiles.ManifestFile, $"its SHA-256 is not the one in the ensemble's {ArtifactFiles.ManifestFile}; another artifact is in its place");
            return ManagedModel.Load(files, name, version);
        }
        catch (QuantraException error) when (error.Reason == QuantraReason.ArtifactInvalid)
        {
            throw ArtifactError.Within(path, error);
        }
    }

    /// <summary>Explains a member's forecast; an error of its recorded explanation names it.</summary>
    private static Attribution[] Explain(
        ExplanationQuery query, string method, ManagedModel member, EnsembleMember entry, PreparedRequest prepared, CallLimit limit)
    {
        try
        {
            return member.Explain(query, method, prepared, limit);
        }
        catch (QuantraException error) when (error.Reason == QuantraReason.ArtifactInvalid)
        {
            throw ArtifactError.Within(ArtifactFiles.PathOf(entry.Name), error);
        }
    }

    /// <summary>Checks and encodes a request for each member.</summary>
    private JointlyPrepared Prepare(PredictionRequest request, DateTimeOffset now)
    {
        try
        {
            if (request.Bars is not { } panel)
                return new(Prepare(request.Window!), null);
            try
            {
                var (trimmed, bars) = ManagedModel.Read(request, panel, BarsNeeded, new());
                return new(Prepare(trimmed, bars, now), bars);
            }
            catch (QuantraException error) when (ForecastDates.DropWrongSessions(error, LongestPipeline, request, now) is { } possible)
            {
                return new(Prepare(request, possible, now), possible);
            }
        }
        catch (QuantraException error) when (error.Reason == QuantraReason.CalendarEnded)
        {
            throw ManagedModel.WithName(error, Name, Version);
        }
    }

    private PreparedRequest[] Prepare(PredictionRequest request, RawBars bars, DateTimeOffset now)
    {
        if (_covariates.Length > 0 || !request.Covariates.IsEmpty || !request.Covariates.FutureSessions.IsEmpty)
            SentCovariates.Check(_covariates, request.Covariates, bars);
        var prepared = new PreparedRequest[_members.Length];
        foreach (var index in _preparing)
        {
            string[] names = [.. _members[index].Pipeline.Covariates.Select(need => need.Name)];
            var own = request.Covariates.IsEmpty ? request : request with { Covariates = SentCovariates.Only(request.Covariates, names) };
            prepared[index] = _members[index].Prepare(own, bars, now);
        }

        return [.. _sources.Select((index, k) => _members[k].PlaceInGraph(prepared[index]))];
    }

    private PreparedRequest[] Prepare(FeatureWindow window)
    {
        if (_preparing.Length > 1)
            throw PredictionError.Of(QuantraStatus.InvalidArgument, QuantraReason.FeatureMismatch, DifferentWindows).ToException();
        var prepared = _members[0].Prepare(window);
        return Array.ConvertAll(_members, member => member.PlaceInGraph(prepared));
    }

    private Forecast Forecast(JointlyPrepared prepared)
    {
        var (members, first) = (prepared.Members, prepared.Members[0]);
        string[] symbols = [.. first.Symbols.Where((_, row) => prepared.Usable[row])];
        List<string> warnings = [.. DataWarnings.Of(_training, prepared.Bars, symbols).Concat(members.SelectMany(one => one.Warnings)).Distinct(StringComparer.Ordinal)];
        Forecast[] forecasts = [.. _members.Select((member, k) => member.Forecast(members[k]))];
        var values = _manifest.Combine(Array.ConvertAll(forecasts, one => one.Values.ToArray()), prepared.Scale);
        var ranking = Ranking.Joint(forecasts, prepared.Usable);
        return forecasts[0] with
        {
            Values = values,
            Returns = forecasts[0].Returns is null ? null : values,
            Prices = forecasts[0].Prices is not null && first.Anchor is { } anchor ? ManagedModel.Prices(anchor, values) : (ReadOnlyMemory<double>?)null,
            Model = Name,
            Version = Version,
            WeightsHash = WeightsHash,
            Warnings = DataWarnings.Limit(warnings),
            Refusals = prepared.Refusals,
            Skill = _manifest.Card.Skill,
            Scores = ranking?.Scores,
            Ranks = ranking?.Ranks,
            UniverseHash = ranking?.UniverseHash ?? "",
            ForecastId = Hash(string.Join('|', forecasts.Select(one => one.ForecastId).Prepend(ManifestHash)))[..16],
        };
    }

    private static string Hash(string text) => Convert.ToHexString(SHA256.HashData(Encoding.UTF8.GetBytes(text))).ToLowerInvariant();
}
