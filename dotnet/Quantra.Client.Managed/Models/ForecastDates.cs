namespace Quantra.Client.Managed;

/// <summary>The dates of a request, checked against the calendar and the clock.</summary>
internal sealed class ForecastDates
{
    private const string NoExchange =
        "target sessions are Monday to Friday, holidays included, because the model has no exchange's calendar; train it with --calendar";

    /// <summary>The sessions that a forecast depends on; the last ones are the encoder's.</summary>
    public required int[] Sessions { get; init; }

    /// <summary>Sessions that the target reaches.</summary>
    public required ReadOnlyMemory<int> Following { get; init; }

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
            TargetSessions = pipeline.Target.Sessions(following.Span),
            BaseSession = pipeline.Target.FindBaseSession(sessions[^1], following.Span),
            Warnings = FindWarnings(pipeline, bars.Sessions),
        };
    }

    /// <summary>The bars of a request without the symbols that have a bar on a wrong session: in the future, not closed yet, or not of the calendar.</summary>
    /// <param name="error">The error of the whole request.</param>
    /// <param name="pipeline">That of the model.</param>
    /// <param name="request">A request with bars.</param>
    /// <param name="now">The present.</param>
    /// <returns>All sessions but the wrong ones; null if no symbol or more than half have a bar on one, or no session is left: then the whole panel may be read wrongly.</returns>
    public static RawBars? DropWrongSessions(QuantraException error, Pipeline pipeline, PredictionRequest request, DateTimeOffset now)
    {
        if (error.Reason is not (QuantraReason.BarsInvalid or QuantraReason.BarIncomplete) || request.Bars is not { Symbols.Count: > 1 } panel)
            return null;
        var bars = BarChecks.Check(panel);
        var wrong = FindWrongSessions(pipeline, bars.Sessions, request, now);
        var (errors, cells) = (new Dictionary<string, QuantraError>(bars.Impossible, StringComparer.Ordinal), new bool[bars.Close.Length]);
        var count = 0;
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            int[] own = [.. bars.Sessions.Where((_, session) => bars.IsPresent(row, session))];
            if (!own.Any(wrong.Contains))
                continue;
            count++;
            errors[bars.Symbols[row]] = CreateError(pipeline, bars.Symbols[row], own, request, now);
            cells.AsSpan(row * bars.Count, bars.Count).Fill(true);
        }

        int[] kept = [.. bars.Sessions.Where(day => !wrong.Contains(day))];
        if (count == 0 || kept.Length == 0 || 2 * count > bars.Symbols.Count)
            return null;
        return bars.RemoveCells(cells).OnSessions(kept) with { Impossible = errors, SentSessions = bars.Sessions };
    }

    private static HashSet<int> FindWrongSessions(Pipeline pipeline, int[] sent, PredictionRequest request, DateTimeOffset now)
    {
        var (calendar, latest) = (pipeline.Calendar, BarChecks.FindLatestDay(now));
        HashSet<int> wrong = [.. sent.Where(day => day > latest)];
        if (!calendar.IsExchange)
            return wrong;
        int[] kept = [.. sent.Where(day => day <= latest)];
        while (kept.Length > 0 && calendar.Unexpected(kept.AsSpan(Math.Max(0, kept.Length - pipeline.BarsNeeded))) is { Length: > 0 } unexpected)
        {
            wrong.UnionWith(unexpected);
            kept = [.. kept.Where(day => !wrong.Contains(day))]; // which makes room for earlier sessions
        }

        for (var at = kept.Length - 1; at >= 0 && !request.AllowIncompleteLastBar && !calendar.IsComplete(kept[at], now); at--)
            wrong.Add(kept[at]);
        return wrong;
    }

    /// <summary>The error of a symbol with a bar on a wrong session.</summary>
    private static QuantraError CreateError(Pipeline pipeline, string symbol, int[] own, PredictionRequest request, DateTimeOffset now)
    {
        try
        {
            BarChecks.CheckPast([symbol], own[^1], now);
            CheckSessions(pipeline, own, request, now);
        }
        catch (QuantraException error)
        {
            var message = error.Error.Message;
            return error.Error with { Message = message.StartsWith($"{symbol}: ", StringComparison.Ordinal) ? message : $"{symbol}: {message}" };
        }

        throw new InvalidOperationException($"{symbol} has no bar on a wrong session");
    }

    private static int[] ChooseSessions(Pipeline pipeline, RawBars bars, PredictionRequest request, DateTimeOffset now)
    {
        var (calendar, sent) = (pipeline.Calendar, bars.Sessions);
        BarChecks.CheckPast(bars, now);
        if (!calendar.IsExchange)
        {
            SymbolChecks.CheckLength(pipeline, bars);
            return pipeline.FindRecentSessions(sent, bars.Symbols);
        }

        if (bars.Calendar.Length > 0 && bars.Calendar != calendar.Name)
            throw PredictionError.Bars($"the bars are of calendar '{bars.Calendar}', but the model's calendar is '{calendar.Name}'").ToException();
        CheckSessions(pipeline, sent, request, now);
        var recent = sent.Length > pipeline.BarsNeeded ? sent[^pipeline.BarsNeeded..] : sent;
        var missing = calendar.IsGapless(recent) ? [] : calendar.Missing(recent);
        if (missing.Length > 0 && request.GapPolicy == GapPolicy.Refuse)
            throw CreateGapError(calendar, recent, missing);
        SymbolChecks.CheckLength(pipeline, bars);
        if (missing.Length > 0 && request.GapPolicy == GapPolicy.Mask)
        {
            int[] filled = [.. recent.Union(missing).Order()];
            recent = filled[^Math.Min(filled.Length, pipeline.BarsNeeded)..];
        }

        return pipeline.FindRecentSessions(recent, bars.Symbols);
    }

    /// <summary>Checks that bars are on closed sessions of the exchange, if the model has one.</summary>
    private static void CheckSessions(Pipeline pipeline, int[] sent, PredictionRequest request, DateTimeOffset now)
    {
        var calendar = pipeline.Calendar;
        if (!calendar.IsExchange)
            return;
        var recent = sent.AsSpan(Math.Max(0, sent.Length - pipeline.BarsNeeded));
        var unexpected = calendar.IsGapless(recent) ? [] : calendar.Unexpected(recent);
        if (unexpected.Length > 0)
            throw PredictionError.Bars($"{calendar.Name} held no session on {Day.ShowAll(unexpected)}; {calendar.Remedy(unexpected)}").ToException();
        if (!request.AllowIncompleteLastBar && !calendar.IsComplete(sent[^1], now))
            throw PredictionError.BarIncomplete(Day.Show(sent[^1])).ToException();
    }

    private static QuantraException CreateGapError(SessionCalendar calendar, int[] recent, int[] missing)
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
