namespace Quantra.Client.Managed;

/// <summary>How an ensemble combines its members, which forecast the same target.</summary>
internal sealed class EnsembleManifest
{
    /// <summary>Largest difference of a sum of weights from 1.</summary>
    private const double Rounding = 1e-9;

    private readonly JsonRecord _manifest;
    private readonly string _calendar;
    private readonly OutputMap _output;
    private readonly double[][] _weights;

    private EnsembleManifest(JsonRecord manifest, int members)
    {
        _manifest = manifest;
        _weights = manifest.Has("weights") ? manifest.Rows("weights") : [];
        CheckRules(manifest.Record("combination"), _weights.Length > 0);
        Target = Target.Read(manifest.Record("target"));
        _calendar = manifest.Text("calendar");
        _output = OutputMap.Read(manifest, Target);
        Card = ModelCard.Read(manifest);
        manifest.End();
        CheckWeights(members);
    }

    public ModelCard Card { get; }

    public Target Target { get; }

    /// <summary>Levels of the quantiles, ascending.</summary>
    public double[] Levels => _output.Levels;

    /// <summary>Reads the manifest of an ensemble.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a value is missing, unknown or invalid.</exception>
    public static EnsembleManifest Read(ArtifactFiles files) => new(files.Manifest, files.Members.Count);

    /// <summary>Checks that members can form this ensemble.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: targets, quantiles or calendars differ, or a feature or covariate has two definitions.</exception>
    public void Check(IReadOnlyList<EnsembleMember> entries, ManagedModel[] members)
    {
        var (features, groups) = (new Dictionary<string, (string, string)>(StringComparer.Ordinal), new Dictionary<string, (string, string)>(StringComparer.Ordinal));
        for (var index = 0; index < members.Length; index++)
        {
            var (name, member, pipeline) = (entries[index].Name, members[index], members[index].Pipeline);
            CheckEqual("target", Text(Target), name, Text(pipeline.Target));
            CheckEqual("quantiles", string.Join(", ", _output.Levels), name, string.Join(", ", member.Levels));
            CheckEqual("calendar", _calendar, name, pipeline.Calendar.Name);
            foreach (var other in Enumerable.Range(0, index).Where(other => !members[other].Pipeline.Calendar.Agrees(pipeline.Calendar)))
                throw Refusal($"the calendars {_calendar} of {entries[other].Name} and {name} have different sessions");
            foreach (var one in pipeline.Features.ObservedDefinitions.Concat(pipeline.Features.KnownDefinitions))
                CheckOneMeaning($"feature {PythonText.Quote(one.Name)}", one.Name, one.Expression, name, features);
            foreach (var need in pipeline.Covariates)
                CheckOneMeaning($"group of covariate {PythonText.Quote(need.Name)}", need.Name, SentCovariates.GroupOf(need), name, groups);
        }
    }

    /// <summary>Combines the members' quantiles to those of the ensemble, [S, H, Q] in the target's unit.</summary>
    /// <param name="members">Calibrated quantiles [S, H, Q] of each member.</param>
    /// <param name="scale">[S, H] mean of the members' window volatilities.</param>
    public double[] Combine(double[][] members, double[] scale)
    {
        var (quantiles, values) = (_output.Levels.Length, Mean(members, _weights));
        if (_weights.Length > 0)
        {
            for (var cell = 0; cell < values.Length; cell += quantiles)
                values.AsSpan(cell, quantiles).Sort();
        }

        _output.AddOffsets(values, scale);
        return values;
    }

    /// <summary>The members' weights [M][1] at a quantile; empty if all count alike.</summary>
    public double[][] SelectWeights(int quantile) => Array.ConvertAll(_weights, row => new[] { row[quantile] });

    /// <summary>The mean of arrays, weighted by [M][Q] if their last dimension is Q, or by [M][1]; without weights, all count alike.</summary>
    public static double[] Mean(double[][] arrays, double[][] weights)
    {
        var sums = new double[arrays[0].Length];
        for (var k = 0; k < arrays.Length; k++)
        {
            var values = arrays[k];
            for (var cell = 0; cell < sums.Length; cell++)
                sums[cell] += weights.Length > 0 ? weights[k][cell % weights[k].Length] * values[cell] : values[cell];
        }

        for (var cell = 0; weights.Length == 0 && cell < sums.Length; cell++)
            sums[cell] /= arrays.Length;
        return sums;
    }

    /// <summary>The card as JSON, with the rules of combination and the members.</summary>
    public string DescribeCard(IReadOnlyList<EnsembleMember> entries, IReadOnlyList<ModelInfo> infos)
    {
        var values = _manifest.Json("card").EnumerateObject().ToDictionary(one => one.Name, one => one.Value.GetRawText().Replace("\n  ", "\n", StringComparison.Ordinal), StringComparer.Ordinal);
        values["combination"] = _manifest.Json("combination").GetRawText();
        values["members"] = $"[\n{string.Join(",\n", infos.Select((info, k) => DescribeMember(entries[k], info, _weights.Length > 0 ? _manifest.Json("weights")[k].GetRawText() : null)))}\n  ]";
        var lines = values.OrderBy(one => one.Key, StringComparer.Ordinal).Select(one => $"  \"{System.Text.Json.JsonEncodedText.Encode(one.Key)}\": {one.Value}");
        return $"{{\n{string.Join(",\n", lines)}\n}}\n";
    }

    private static string DescribeMember(EnsembleMember entry, ModelInfo info, string? weights)
    {
        List<string> lines =
        [
            FormattableString.Invariant($"\"bars_needed\": {info.BarsNeeded}"),
            FormattableString.Invariant($"\"encoder_length\": {info.EncoderLength}"),
            FormattableString.Invariant($"\"features\": {info.ObservedFeatures.Count + info.KnownFeatures.Count + info.StaticFeatures.Count}"),
            $"\"kind\": \"{info.Kind}\"",
            $"\"manifest_hash\": \"{entry.ManifestHash}\"",
            $"\"name\": \"{entry.Name}\"",
            .. weights is null ? (string[])[] : [$"\"weights\": {weights.Replace("\n", "\n  ", StringComparison.Ordinal)}"],
            $"\"weights_hash\": \"{info.WeightsHash}\"",
        ];
        return $"    {{\n{string.Join(",\n", lines.Select(line => "      " + line))}\n    }}";
    }

    /// <summary>An ensemble states its rules of combination in full; one with other rules is rejected.</summary>
    private static void CheckRules(JsonRecord rules, bool isWeighted)
    {
        Check("quantiles", isWeighted
            ? "mean of each quantile over the members' calibrated forecasts by the manifest's weights, then sorted"
            : "mean of each quantile over the members' calibrated forecasts (Vincent average)");
        Check("scores", "minus the mean of the members' ranks; none unless every member ranks");
        Check("offsets", "in units of the mean of the members' window volatilities, added to the mean, then uncrossed");
        rules.End();

        void Check(string key, string rule)
        {
            if (rules.Text(key) != rule)
                throw rules.Refusal(key, $"is not this program's: {rule}");
        }
    }

    private void CheckWeights(int members)
    {
        if (_weights.Length == 0)
            return;
        var quantiles = _output.Levels.Length;
        if (_weights.Length != members || !Array.TrueForAll(_weights, row => row.Length == quantiles))
            throw Refusal($"weights must be {members} rows of {quantiles} numbers, one row per member");
        if (_weights.Any(row => row.Min() < 0) || Enumerable.Range(0, quantiles).Any(q => !(Math.Abs(_weights.Sum(row => row[q]) - 1) <= Rounding)))
            throw Refusal("weights must be 0 or more and have a sum of 1 per quantile");
    }

    private static void CheckEqual(string what, string own, string name, string other)
    {
        if (own != other)
            throw Refusal($"the {what} of the ensemble is {own}, that of {name} is {other}; members of an ensemble must share it");
    }

    private static void CheckOneMeaning(string what, string key, string meaning, string member, Dictionary<string, (string Member, string Meaning)> known)
    {
        if (!known.TryAdd(key, (member, meaning)) && known[key].Meaning != meaning)
            throw Refusal($"{what} is {known[key].Meaning} in {known[key].Member}, but {meaning} in {member}");
    }

    private static string Text(Target target) => FormattableString.Invariant($"{target.KindName} with lag {target.Lag} over {string.Join(", ", target.Horizons)} days");

    private static QuantraException Refusal(string problem) => ArtifactError.Of(ArtifactFiles.ManifestFile, problem);
}
