namespace Quantra.Client.Managed;

/// <summary>Everything between bars and a network's inputs: features with fitted numbers, target, normaliser, calendar and lengths.</summary>
internal sealed class Pipeline
{
    private const int LongestEncoder = 2500;

    public required FittedFeatures Features { get; init; }

    public required Target Target { get; init; }

    public required INormaliser Normaliser { get; init; }

    public required SessionCalendar Calendar { get; init; }

    /// <summary>Sessions that the network reads.</summary>
    public required int EncoderLength { get; init; }

    /// <summary>Bars that a symbol needs in the encoder's sessions.</summary>
    public required int LeastBars { get; init; }

    /// <summary>Known values that a symbol needs in the window of the levels.</summary>
    public required int LeastValues { get; init; }

    /// <summary>SHA-256 of features.json.</summary>
    public required string SchemaHash { get; init; }

    /// <summary>What determines a network's inputs: pipelines with equal recipes compute equal inputs.</summary>
    public required string Recipe { get; init; }

    /// <summary>Covariates that a request must contain.</summary>
    public required IReadOnlyList<CovariateInfo> Covariates { get; init; }

    /// <summary>Bars that one row of inputs depends on, the row's own bar included.</summary>
    public int Lookback => Math.Max(Features.Lookback, Normaliser.Window + 1 - (EncoderLength - 1));

    /// <summary>Bars that one forecast depends on.</summary>
    public int BarsNeeded => EncoderLength + Lookback - 1;

    public InputSizes Sizes => field ??= new(
        EncoderLength,
        Target.Reach,
        Features.Names.Length,
        Features.KnownColumns.Length,
        Features.Statics.Widths.Sum(),
        Features.Statics.Widths);

    /// <summary>Reads a pipeline from a verified artifact.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a value is missing, unknown or invalid.</exception>
    public static Pipeline Read(ArtifactFiles files, Target target)
    {
        var manifest = files.Manifest;
        var encoderLength = manifest.Integer("encoder_length");
        if (encoderLength is < 1 or > LongestEncoder)
            throw manifest.Refusal("encoder_length", $"is {encoderLength}, but must be 1 to {LongestEncoder}");
        var features = FittedFeatures.Read(files.Json(ArtifactFiles.FeaturesFile));
        var normaliser = Managed.Normaliser.Read(manifest.Record("normaliser"), target);
        var minimum = manifest.Record("minimum");
        var (share, values) = (minimum.Number("encoder_share"), minimum.Integer("values"));
        minimum.End();
        if (share is not (> 0 and <= 1) || values < 1)
            throw manifest.Refusal("minimum", "must have an encoder_share above 0 and at most 1, and values of at least 1");
        return new Pipeline
        {
            Features = features,
            Target = target,
            Normaliser = normaliser,
            Calendar = new SessionCalendar(SessionSchedule.Read(files.Json(ArtifactFiles.CalendarFile))),
            EncoderLength = encoderLength,
            LeastBars = (int)Math.Ceiling(Math.Round(share * encoderLength, 9)), // 0.1 * 30 is slightly more than 3
            LeastValues = Math.Min(values, normaliser.Window),
            SchemaHash = files.Hash(ArtifactFiles.FeaturesFile),
            Recipe = FormattableString.Invariant($"{files.Hash(ArtifactFiles.FeaturesFile)}|{files.Hash(ArtifactFiles.CalendarFile)}|{encoderLength}|{Raw("target")}|{Raw("normaliser")}|{Raw("minimum")}"),
            Covariates = ListCovariates(features),
        };

        string Raw(string key) => manifest.Json(key).GetRawText();
    }

    /// <summary>The sessions that one forecast depends on: the last of <paramref name="sessions"/>, preceded by earlier ones.</summary>
    /// <exception cref="QuantraException">TOO_FEW_BARS: the calendar does not reach back far enough.</exception>
    public int[] FindRecentSessions(int[] sessions, IReadOnlyList<string> symbols)
    {
        var lacking = BarsNeeded - sessions.Length;
        if (lacking <= 0)
            return lacking < 0 ? sessions[^BarsNeeded..] : sessions;
        return Calendar.FindPrecedingOrNull(sessions[0], lacking) is { } before
            ? [.. before, .. sessions]
            : throw PredictionError.TooFewBars(string.Join(", ", symbols.Take(3)), sessions.Length, BarsNeeded, "sessions", BarsNeeded).ToException();
    }

    private static CovariateInfo[] ListCovariates(FittedFeatures features) =>
    [
        .. features.Covariates.Observed.Select(name => new CovariateInfo(name, CovariateGroup.Observed, [])),
        .. features.Covariates.Known.Select(name => new CovariateInfo(name, CovariateGroup.Known, [])),
        .. features.Statics.Numbers.Select(one => new CovariateInfo(one.Name, CovariateGroup.Static, [])),
        .. features.Statics.Categories.Select(one => new CovariateInfo(one.Name, CovariateGroup.Static, one.Categories)),
    ];
}
