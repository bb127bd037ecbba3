namespace Quantra.Client.Managed;

/// <summary>The dates of a request, checked against the calendar and the clock.</summary>
internal sealed class ForecastDates
{
    private const string NoExchange =
        "target sessions are Monday to Friday, holidays included, because the model has no exchange's calendar; train it with --calendar";

    /// <summary>The sessions that a forecast depends on; the last ones are the encoder's.</summary>
    public required int[] Sessions { get; init; }

    /// <summary>Sessions that the target reaches.</summary>
    public required int[] Following { get; init; }

    /// <summary>Session that each horizon ends on.</summary>
    public required DateOnly[] TargetSessions { get; init; }

    /// <summary>Session that horizons count from.</summary>
    public required DateOnly BaseSession { get; init; }

    public required string[] Warnings { get; init; }

    /// <summary>The last session.</summary>
    public int AsOf => Sessions[^1];

    /// <summary>Checks the dates of bars and selects the sessions that a forecast depends on.</summary>
    /// <exception cref="QuantraException">
    /// BARS_INVALID, BAR_INCOMPLETE, SESSION_GAP, CALENDAR_ENDED: the dates violate the calendar. TOO_FEW_BARS, NO_USABLE_SYMBOL: the bars are
    /// too short for every symbol.
    /// </exception>
    public static ForecastDates Read(Pipeline pipeline, RawBars bars, PredictionRequest request, DateTimeOffset now)
    {
        var sessions = ChooseSessions(pipeline, bars, request, now);
        var following = pipeline.Calendar.Following(sessions[^1], pipeline.Target.Reach);
        return new ForecastDates
        {
            Sessions = sessions,
            Following = following,
            TargetSessions = pipeline.Target.Sessions(following),
            BaseSession = pipeline.Target.BaseSession(sessions[^1], following),
            Warnings = FindWarnings(pipeline, bars.Sessions),
        };
    }

    private static int[] ChooseSessions(Pipeline pipeline, RawBars bars, PredictionRequest request, DateTimeOffset now)
    {
        var (calendar, sent) = (pipeline.Calendar, bars.Sessions);
        BarChecks.CheckPast(bars, DateOnly.FromDateTime(now.UtcDateTime));
        if (!calendar.IsExchange)
        {
            SymbolChecks.CheckLength(pipeline, bars);
            return pipeline.RecentSessions(sent, bars.Symbols);
        }

        if (bars.Calendar.Length > 0 && bars.Calendar != calendar.Name)
            throw PredictionError.Bars($"the bars are of calendar '{bars.Calendar}', but the model's calendar is '{calendar.Name}'").ToException();
        var recent = sent.Length > pipeline.BarsNeeded ? sent[^pipeline.BarsNeeded..] : sent;
        var isGapless = calendar.IsGapless(recent);
        CheckSessions(calendar, recent, isGapless);
        if (!request.AllowIncompleteLastBar && !calendar.IsComplete(sent[^1], now))
            throw PredictionError.BarIncomplete(Day.Show(sent[^1])).ToException();
        var missing = isGapless ? [] : calendar.Missing(recent);
        if (missing.Length > 0 && request.GapPolicy == GapPolicy.Refuse)
            throw SessionGap(calendar, recent, missing);
        SymbolChecks.CheckLength(pipeline, bars);
        if (missing.Length > 0 && request.GapPolicy == GapPolicy.Mask)
        {
            int[] filled = [.. recent.Union(missing).Order()];
            recent = filled[^Math.Min(filled.Length, pipeline.BarsNeeded)..];
        }

        return pipeline.RecentSessions(recent, bars.Symbols);
    }

    private static void CheckSessions(SessionCalendar calendar, int[] recent, bool isGapless)
    {
        var unexpected = isGapless ? [] : calendar.Unexpected(recent);
        if (unexpected.Length > 0)
            throw PredictionError.Bars($"{calendar.Name} held no session on {Day.ShowAll(unexpected)}; {calendar.Remedy(unexpected)}").ToException();
    }

    private static QuantraException SessionGap(SessionCalendar calendar, int[] recent, int[] missing)
    {
        var lacksWeekends = missing.Any(Day.IsWeekend) && !recent.Any(Day.IsWeekend);
        var hint = lacksWeekends ? "; bars of Monday to Friday need a model that was trained with their exchange's calendar" : "";
        var days = Day.ShowAll(missing);
        return PredictionError.SessionGap(
            $"{calendar.Name} held sessions on {days} that the bars lack; send them, or choose the gap policy mask or ignore{hint}",
            days,
            missing.Length).ToException();
    }

    private static string[] FindWarnings(Pipeline pipeline, int[] sent)
    {
        if (pipeline.Calendar.IsExchange)
            return [];
        if (sent.Length >= pipeline.EncoderLength)
            return [NoExchange];
        var guessed = FormattableString.Invariant(
            $"the bars begin on {Day.Show(sent[0])}, after the first of the {pipeline.EncoderLength} sessions that the model reads; earlier sessions are ")
            + "taken to be Monday to Friday, so a network that reads their calendar forecasts slightly differently than with "
            + "a symbol that has bars on them: send such bars too, or train with --calendar";
        return [NoExchange, guessed];
    }
}
