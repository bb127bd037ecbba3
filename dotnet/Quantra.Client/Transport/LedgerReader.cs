using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>Converts messages of a server's ledger. An unknown value of an enum becomes Unknown. Any other invalid content is an INTERNAL error.</summary>
internal static class LedgerReader
{
    private const long NanosecondsPerTick = 100;

    public static RecordedForecast Forecast(V1.RecordedForecast forecast)
    {
        var values = ArrayBytes.Doubles(forecast.Values);
        InvalidResponse.ThrowIfWrongLength("values", values.Length, forecast.Horizons.Count * forecast.Quantiles.Count);
        var sessions = forecast.TargetSessions.Count;
        InvalidResponse.ThrowIfWrongLength("target_sessions", sessions == 0 ? null : sessions, forecast.Horizons.Count);
        return new()
        {
            ForecastId = forecast.ForecastId,
            Symbol = forecast.Symbol,
            Role = Role(forecast.Role),
            Model = forecast.Model,
            Version = forecast.Version,
            WeightsHash = forecast.WeightsHash,
            AsOf = SessionNumber.ToDateOrNull(forecast.AsOfSession),
            BaseSession = SessionNumber.ToDateOrNull(forecast.BaseSession),
            TargetKind = forecast.TargetKind,
            Horizons = [.. forecast.Horizons],
            TargetSessions = [.. forecast.TargetSessions.Select(SessionNumber.ToDate)],
            Quantiles = [.. forecast.Quantiles],
            Values = values,
            AnchorPrice = forecast.HasAnchorPrice ? forecast.AnchorPrice : null,
            IsProspective = forecast.IsProspective,
            MadeAt = Time(forecast.MadeAtNs),
            Outcomes = [.. forecast.Outcomes.Select(Outcome)],
        };
    }

    public static LedgerHealth Health(V1.GetHealthResponse health) =>
        new([.. health.Models.Select(Model)], SessionNumber.ToDateOrNull(health.LastSession));

    /// <summary>Converts an event; throws if it is not later than the last one.</summary>
    public static LedgerEvent Event(V1.WatchEventsResponse message, long last) => message.Number > last
        ? new(
            message.Number,
            Time(message.MadeAtNs),
            message.Kind,
            message.Model,
            message.Version,
            SessionNumber.ToDateOrNull(message.Session),
            message.Reason,
            message.DetailJson)
        : throw InvalidResponse.Create($"event {message.Number} came after event {last}");

    public static ModelComparison Comparison(V1.CompareVersionsResponse comparison) => new()
    {
        Champion = comparison.Champion,
        Challenger = comparison.Challenger,
        Decision = comparison.Decision switch
        {
            V1.ComparisonDecision.For => ComparisonDecision.For,
            V1.ComparisonDecision.Against => ComparisonDecision.Against,
            V1.ComparisonDecision.Undecided => ComparisonDecision.Undecided,
            _ => ComparisonDecision.Unknown,
        },
        Need = comparison.Need,
        Sentence = comparison.Sentence,
        FirstSession = SessionNumber.ToDateOrNull(comparison.FirstSession),
        LastSession = SessionNumber.ToDateOrNull(comparison.LastSession),
        Days = comparison.Days,
        Symbols = [.. comparison.Symbols],
        Improvement = comparison.HasImprovement ? comparison.Improvement : null,
        Lower = comparison.HasLower ? comparison.Lower : null,
        Upper = comparison.HasUpper ? comparison.Upper : null,
        ResultJson = comparison.ResultJson,
    };

    public static PromotionResult Promotion(V1.PromoteVersionResponse promotion) =>
        new(promotion.Promoted, [.. promotion.Gates.Select(Gate)], promotion.Champion == 0 ? null : promotion.Champion);

    private static GateResult Gate(V1.GateResult gate) => new(gate.Name, gate.Passed, gate.Overridden, gate.Need, gate.Have);

    private static RecordedOutcome Outcome(V1.RecordedOutcome outcome) => new(
        outcome.Horizon,
        SessionNumber.ToDate(outcome.Session),
        outcome.Revision,
        outcome.Status switch
        {
            V1.OutcomeStatus.Scored => OutcomeStatus.Scored,
            V1.OutcomeStatus.Unscorable => OutcomeStatus.Unscorable,
            _ => OutcomeStatus.Unknown,
        },
        outcome.HasValue ? outcome.Value : null,
        outcome.Reason,
        outcome.HasPinball ? outcome.Pinball : null,
        outcome.HasIsInside ? outcome.IsInside : null,
        outcome.HasLevel ? outcome.Level : null);

    private static ModelHealth Model(V1.ModelHealth model) =>
        new(model.Model, model.Version, model.IsChampion, Lamp(model.Lamp), [.. model.Tests.Select(Test)]);

    private static TestHealth Test(V1.TestHealth test) => new(
        test.Monitor,
        test.Horizon,
        Lamp(test.Lamp),
        SessionNumber.ToDate(test.Session),
        test.Days,
        test.HasShare ? test.Share : null,
        test.HasPromised ? test.Promised : null,
        test.StateJson);

    private static Lamp Lamp(V1.Lamp lamp) => lamp switch
    {
        V1.Lamp.Learning => Client.Lamp.Learning,
        V1.Lamp.Green => Client.Lamp.Green,
        V1.Lamp.Amber => Client.Lamp.Amber,
        V1.Lamp.Red => Client.Lamp.Red,
        _ => Client.Lamp.Unknown,
    };

    private static ForecastRole Role(V1.ForecastRole role) => role switch
    {
        V1.ForecastRole.Champion => ForecastRole.Champion,
        V1.ForecastRole.Challenger => ForecastRole.Challenger,
        V1.ForecastRole.Baseline => ForecastRole.Baseline,
        V1.ForecastRole.Client => ForecastRole.Client,
        _ => ForecastRole.Unknown,
    };

    private static DateTimeOffset Time(long nanoseconds) => DateTimeOffset.UnixEpoch.AddTicks(nanoseconds / NanosecondsPerTick);
}
