using System.Collections.ObjectModel;

namespace Quantra.Client.Wire;

/// <summary>Converts messages of the wire protocol to responses.</summary>
/// <remarks>
/// Lists are copied with [.. x], because the list of a message is mutable. An unknown value of an enum becomes Unknown. Any other
/// invalid content is an INTERNAL error.
/// </remarks>
internal static class ResponseReader
{
    public static IReadOnlyList<PredictionResult> Results(V1.PredictResponse answer) => [.. answer.Results.Select(Result)];

    /// <summary>Converts the result of one instance. Invalid content becomes the error of this result only.</summary>
    public static PredictionResult Result(V1.Result result)
    {
        try
        {
            return result.OutcomeCase switch
            {
                V1.Result.OutcomeOneofCase.Forecast => new(result.RequestId, Forecast(result.Forecast), null),
                V1.Result.OutcomeOneofCase.Error => new(result.RequestId, null, StatusReader.Error(result.Error)),
                _ => throw InvalidResponse.Create($"a result has neither a forecast nor an error"),
            };
        }
        catch (QuantraException unreadable)
        {
            return new(result.RequestId, null, unreadable.Error);
        }
    }

    public static Forecast Forecast(V1.Forecast forecast)
    {
        var read = Unchecked(forecast);
        var (symbols, horizons) = (read.Symbols.Count, read.Horizons.Count);
        var cells = symbols * horizons * read.Quantiles.Count;
        InvalidResponse.ThrowIfWrongLength("values", read.Values.Length, cells);
        InvalidResponse.ThrowIfWrongLength("returns", read.Returns?.Length, cells);
        InvalidResponse.ThrowIfWrongLength("prices", read.Prices?.Length, cells);
        InvalidResponse.ThrowIfWrongLength("anchor_price", read.AnchorPrice?.Length, symbols);
        InvalidResponse.ThrowIfWrongLength("scores", read.Scores?.Length, symbols * horizons);
        InvalidResponse.ThrowIfWrongLength("ranks", read.Ranks?.Length, symbols * horizons);
        InvalidResponse.ThrowIfWrongLength("target_sessions", read.TargetSessions.Count == 0 ? null : read.TargetSessions.Count, horizons);
        return read;
    }

    public static Attribution Attribution(V1.Attribution attribution)
    {
        var read = Unchecked(attribution);
        var (symbols, sessions, rows) = (read.Symbols.Count, read.Sessions.Count, read.RowNames.Count);
        InvalidResponse.ThrowIfWrongLength("row_kinds", read.RowKinds.Count, rows);
        InvalidResponse.ThrowIfWrongLength("per_row", read.PerRow.Length, symbols * rows);
        InvalidResponse.ThrowIfWrongLength("prediction", read.Prediction.Length, symbols);
        InvalidResponse.ThrowIfWrongLength("baseline_prediction", read.BaselinePrediction.Length, symbols);
        InvalidResponse.ThrowIfWrongLength("relative_gap", read.RelativeGap.Length, symbols);
        InvalidResponse.ThrowIfWrongLength("converged", read.Converged.Count, symbols);
        InvalidResponse.ThrowIfWrongLength("nodes", read.Nodes.Count, symbols);
        if (sessions > 0)
            InvalidResponse.ThrowIfWrongLength("per_time", read.PerTime?.Length, symbols * sessions);
        foreach (var weights in read.Internals)
            InvalidResponse.ThrowIfWrongLength(weights.Name, weights.Values.Length, symbols * weights.Labels.Count);
        return read;
    }

    public static GlobalExplanationProgress Progress(V1.ExplainGlobalProgress progress) => new()
    {
        Model = progress.Model,
        Version = progress.Version,
        WeightsHash = progress.WeightsHash,
        Targets = [.. progress.Targets.Select(Importance)],
        Done = progress.Done,
        Total = progress.Total,
        Refused = progress.Refused,
        RefusedSymbols = progress.RefusedSymbols,
        Refusals = [.. progress.Refusals.Select(one => new ExplanationRefusal(one.Place, one.Symbol, StatusReader.Error(one.Error ?? new V1.Error())))],
    };

    /// <summary>Converts a model version; throws if the response has none.</summary>
    public static ModelInfo Model(V1.ModelInfo? model) => model is null ? throw InvalidResponse.Create($"it has no model") : new()
    {
        Name = model.Name,
        Version = model.Version,
        Aliases = [.. model.Aliases],
        IsDefault = model.IsDefault,
        Kind = model.Kind,
        ObservedFeatures = [.. model.ObservedFeatures.Select(Feature)],
        KnownFeatures = [.. model.KnownFeatures.Select(Feature)],
        StaticFeatures = [.. model.StaticFeatures.Select(Feature)],
        Covariates = [.. model.Covariates.Select(Covariate)],
        SchemaHash = model.SchemaHash,
        EncoderLength = model.EncoderLength,
        Lookback = model.Lookback,
        BarsNeeded = model.BarsNeeded,
        FutureLength = model.FutureLength,
        Horizons = [.. model.Horizons],
        Quantiles = [.. model.Quantiles],
        Lag = model.Lag,
        TargetKind = model.TargetKind,
        Calendar = model.Calendar,
        CalendarEnds = SessionNumber.ToDateOrNull(model.CalendarEnds),
        IsPanelModel = model.IsPanelModel,
        IsScaledPerHorizon = model.IsScaledPerHorizon,
        ExplainMethods = [.. model.ExplainMethods.Select(Method)],
        WeightsHash = model.WeightsHash,
        CardJson = model.CardJson,
    };

    /// <summary>Converts the errors of symbols.</summary>
    public static ReadOnlyDictionary<string, QuantraError> Refusals(IEnumerable<V1.SymbolError> refusals) => refusals
        .DistinctBy(one => one.Symbol)
        .ToDictionary(one => one.Symbol, one => StatusReader.Error(one.Error ?? new V1.Error()))
        .AsReadOnly();

    private static Forecast Unchecked(V1.Forecast forecast) => new()
    {
        Symbols = [.. forecast.Symbols],
        AsOf = SessionNumber.ToDateOrNull(forecast.AsOfSession),
        TargetSessions = Days(forecast.TargetSessions),
        Lag = forecast.Lag,
        BaseSession = SessionNumber.ToDateOrNull(forecast.BaseSession),
        Horizons = [.. forecast.Horizons],
        Quantiles = [.. forecast.Quantiles],
        TargetKind = forecast.TargetKind,
        Values = ArrayBytes.Doubles(forecast.Values),
        Returns = ArrayBytes.ReadDoublesOrNull(forecast.Returns),
        Prices = ArrayBytes.ReadDoublesOrNull(forecast.Prices),
        AnchorPrice = ArrayBytes.ReadDoublesOrNull(forecast.AnchorPrice),
        Model = forecast.Model,
        Version = forecast.Version,
        WeightsHash = forecast.WeightsHash,
        Warnings = [.. forecast.Warnings],
        ForecastId = forecast.ForecastId,
        Scores = ArrayBytes.ReadDoublesOrNull(forecast.Scores),
        Ranks = forecast.Ranks.Count == 0 ? (ReadOnlyMemory<int>?)null : forecast.Ranks.ToArray(),
        UniverseHash = forecast.UniverseHash,
        Refusals = Refusals(forecast.Refusals),
        Skill = Skill(forecast.Skill),
    };

    private static Attribution Unchecked(V1.Attribution attribution) => new()
    {
        Symbols = [.. attribution.Symbols],
        AsOf = SessionNumber.ToDateOrNull(attribution.AsOfSession),
        Horizon = attribution.Horizon,
        Quantile = attribution.Quantile,
        Method = Method(attribution.Method),
        Baseline = attribution.Baseline,
        Unit = attribution.Unit,
        RowNames = [.. attribution.RowNames],
        RowKinds = [.. attribution.RowKinds.Select(Kind)],
        PerRow = ArrayBytes.Doubles(attribution.PerRow),
        Sessions = Days(attribution.Sessions),
        PerTime = ArrayBytes.ReadDoublesOrNull(attribution.PerTime),
        Cells = ArrayBytes.ReadDoublesOrNull(attribution.Cells),
        Prediction = ArrayBytes.Doubles(attribution.Prediction),
        BaselinePrediction = ArrayBytes.Doubles(attribution.BaselinePrediction),
        RelativeGap = ArrayBytes.Doubles(attribution.RelativeGap),
        Converged = [.. attribution.Converged],
        Nodes = [.. attribution.Nodes],
        Model = attribution.Model,
        Version = attribution.Version,
        WeightsHash = attribution.WeightsHash,
        Warnings = [.. attribution.Warnings],
        Internals = [.. attribution.Internals.Select(Internal)],
        Skill = Skill(attribution.Skill),
        Refusals = Refusals(attribution.Refusals),
    };

    private static Skill? Skill(V1.Skill? skill)
    {
        if (skill is null)
            return null;
        var verdict = skill.Verdict switch
        {
            V1.SkillVerdict.Better => SkillVerdict.Better,
            V1.SkillVerdict.Undecided => SkillVerdict.Undecided,
            V1.SkillVerdict.Worse => SkillVerdict.Worse,
            _ => SkillVerdict.Unknown,
        };
        return new(
            skill.Rival,
            skill.Improvement,
            skill.Lower,
            skill.Upper,
            skill.Level,
            verdict,
            skill.Sentence,
            skill.DaysShort,
            skill.Line);
    }

    private static TargetImportance Importance(V1.TargetImportance target) => new()
    {
        Horizon = target.Horizon,
        Quantile = target.Quantile,
        Unit = target.Unit,
        RowNames = [.. target.RowNames],
        RowKinds = [.. target.RowKinds.Select(Kind)],
        MeanSize = ArrayBytes.Doubles(target.MeanSize),
        StandardError = ArrayBytes.Doubles(target.StandardError),
        Windows = target.Windows,
        Converged = target.Converged,
    };

    private static NetworkInternal Internal(V1.Internal weights)
    {
        var axis = weights.Axis switch
        {
            V1.InternalAxis.Inputs => InternalAxis.Inputs,
            V1.InternalAxis.Sessions => InternalAxis.Sessions,
            _ => InternalAxis.Unknown,
        };
        return new(weights.Name, axis, [.. weights.Labels], ArrayBytes.Doubles(weights.Values));
    }

    private static CovariateInfo Covariate(V1.CovariateInfo covariate)
    {
        var group = covariate.Group switch
        {
            V1.CovariateGroup.Observed => CovariateGroup.Observed,
            V1.CovariateGroup.Known => CovariateGroup.Known,
            V1.CovariateGroup.Static => CovariateGroup.Static,
            _ => CovariateGroup.Unknown,
        };
        return new(covariate.Name, group, [.. covariate.Categories]);
    }

    private static FeatureInfo Feature(V1.FeatureInfo feature) =>
        new(feature.Name, feature.Expression, feature.Meaning, feature.Unit);

    private static IReadOnlyList<DateOnly> Days(IEnumerable<int> sessions) => [.. sessions.Select(SessionNumber.ToDate)];

    private static string Method(V1.ExplainMethod method) => method switch
    {
        V1.ExplainMethod.IntegratedGradients => "integrated-gradients",
        V1.ExplainMethod.TreeShap => "tree-shap",
        V1.ExplainMethod.Occlusion => "occlusion",
        V1.ExplainMethod.Shapley => "shapley",
        _ => "unknown",
    };

    private static RowKind Kind(V1.RowKind kind) => kind switch
    {
        V1.RowKind.Observed => RowKind.Observed,
        V1.RowKind.Known => RowKind.Known,
        V1.RowKind.Static => RowKind.Static,
        V1.RowKind.Location => RowKind.Location,
        V1.RowKind.Scale => RowKind.Scale,
        V1.RowKind.Conformal => RowKind.Conformal,
        V1.RowKind.Neighbours => RowKind.Neighbours,
        _ => RowKind.Unknown,
    };
}
