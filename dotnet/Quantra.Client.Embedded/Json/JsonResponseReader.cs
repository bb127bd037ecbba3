using System.Text.Json;

namespace Quantra.Client.Embedded.Json;

/// <summary>Reads answers of the Python door, in the format of Python's predictor.embed.</summary>
internal static class JsonResponseReader
{
    /// <summary>Reads an answer, or throws the error that it is.</summary>
    /// <exception cref="QuantraException">The answer is an error.</exception>
    public static T Read<T>(JsonResponse response, Func<JsonFields, T> read)
    {
        using var json = JsonDocument.Parse(response.Json);
        var answer = new JsonFields(json.RootElement, response.Buffers);
        return answer.Has("error") ? throw answer.Object("error").Error().ToException() : read(answer);
    }

    /// <summary>The result of one instance.</summary>
    public static PredictionResult Result(JsonFields result) => result.Has("forecast")
        ? new(result.Text("request_id"), Forecast(result.Object("forecast")), null)
        : new(result.Text("request_id"), null, result.Object("error").Error());

    /// <summary>The explanation of one number.</summary>
    public static Attribution Attribution(JsonFields attribution) => new()
    {
        Symbols = attribution.Texts("symbols"),
        AsOf = SessionNumber.ToDateOrNull(attribution.Whole("as_of_session")),
        Horizon = attribution.Whole("horizon"),
        Quantile = attribution.Number("quantile"),
        Method = attribution.Text("method"),
        Baseline = attribution.Text("baseline"),
        Unit = attribution.Text("unit"),
        RowNames = attribution.Texts("row_names"),
        RowKinds = [.. attribution.Texts("row_kinds").Select(Named<RowKind>)],
        PerRow = attribution.Array("per_row"),
        Sessions = attribution.Days("sessions"),
        PerTime = attribution.ArrayOrNull("per_time"),
        Cells = attribution.ArrayOrNull("cells"),
        Prediction = attribution.Array("prediction"),
        BaselinePrediction = attribution.Array("baseline_prediction"),
        RelativeGap = attribution.Array("relative_gap"),
        Converged = attribution.Flags("converged"),
        Nodes = attribution.Wholes("nodes"),
        Model = attribution.Text("model"),
        Version = attribution.Whole("version"),
        WeightsHash = attribution.Text("weights_hash"),
        Warnings = attribution.Texts("warnings"),
        Internals = attribution.Objects("internals", Internal),
        Skill = Skill(attribution),
    };

    /// <summary>A version of a model.</summary>
    public static ModelInfo Model(JsonFields model) => new()
    {
        Name = model.Text("name"),
        Version = model.Whole("version"),
        Aliases = model.Texts("aliases"),
        IsDefault = model.Flag("is_default"),
        Kind = model.Text("kind"),
        ObservedFeatures = model.Objects("observed_features", Feature),
        KnownFeatures = model.Objects("known_features", Feature),
        StaticFeatures = model.Objects("static_features", Feature),
        Covariates = model.Objects("covariates", Covariate),
        SchemaHash = model.Text("schema_hash"),
        EncoderLength = model.Whole("encoder_length"),
        Lookback = model.Whole("lookback"),
        BarsNeeded = model.Whole("bars_needed"),
        FutureLength = model.Whole("future_length"),
        Horizons = model.Wholes("horizons"),
        Quantiles = model.Numbers("quantiles"),
        Lag = model.Whole("lag"),
        TargetKind = model.Text("target_kind"),
        Calendar = model.Text("calendar"),
        CalendarEnds = SessionNumber.ToDateOrNull(model.Whole("calendar_ends")),
        IsPanelModel = model.Flag("is_panel_model"),
        ExplainMethods = model.Texts("explain_methods"),
        WeightsHash = model.Text("weights_hash"),
        CardJson = model.Text("card_json"),
    };

    private static Forecast Forecast(JsonFields forecast) => new()
    {
        Symbols = forecast.Texts("symbols"),
        AsOf = SessionNumber.ToDateOrNull(forecast.Whole("as_of_session")),
        TargetSessions = forecast.Days("target_sessions"),
        Lag = forecast.Whole("lag"),
        BaseSession = SessionNumber.ToDateOrNull(forecast.Whole("base_session")),
        Horizons = forecast.Wholes("horizons"),
        Quantiles = forecast.Numbers("quantiles"),
        TargetKind = forecast.Text("target_kind"),
        Values = forecast.Array("values"),
        Returns = forecast.ArrayOrNull("returns"),
        Prices = forecast.ArrayOrNull("prices"),
        AnchorPrice = forecast.ArrayOrNull("anchor_price"),
        Model = forecast.Text("model"),
        Version = forecast.Whole("version"),
        WeightsHash = forecast.Text("weights_hash"),
        Warnings = forecast.Texts("warnings"),
        ForecastId = forecast.Text("forecast_id"),
        Scores = forecast.ArrayOrNull("scores"),
        Ranks = forecast.RowsOrNull("ranks"),
        UniverseHash = forecast.Text("universe_hash"),
        Refusals = forecast.Objects("refusals", one => (one.Text("symbol"), one.Object("error").Error())).ToDictionary(),
        Skill = Skill(forecast),
    };

    private static Skill? Skill(JsonFields answer)
    {
        if (!answer.Has("skill"))
            return null;
        var skill = answer.Object("skill");
        return new(
            skill.Text("rival"),
            skill.Number("improvement"),
            skill.Number("lower"),
            skill.Number("upper"),
            skill.Number("level"),
            Named<SkillVerdict>(skill.Text("verdict")),
            skill.Text("sentence"),
            skill.Whole("days_short"),
            skill.Text("line"));
    }

    private static NetworkInternal Internal(JsonFields weights) =>
        new(weights.Text("name"), Named<InternalAxis>(weights.Text("axis")), weights.Texts("labels"), weights.Array("values"));

    private static FeatureInfo Feature(JsonFields feature) =>
        new(feature.Text("name"), feature.Text("expression"), feature.Text("meaning"), feature.Text("unit"));

    private static CovariateInfo Covariate(JsonFields covariate) =>
        new(covariate.Text("name"), Named<CovariateGroup>(covariate.Text("group")), covariate.Texts("categories"));

    /// <summary>The value with a name; the first one, Unknown, for a name that a newer Python added.</summary>
    private static T Named<T>(string name)
        where T : struct, Enum => Enum.TryParse<T>(name, ignoreCase: true, out var value) ? value : default;
}
