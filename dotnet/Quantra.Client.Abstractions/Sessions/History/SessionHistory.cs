namespace Quantra.Client;

/// <summary>
/// The history of a session as far as forecasts depend on it, from which the session can be reopened. Immutable: a push returns a new one.
/// The rules of pushes follow predictor/subscription.
/// </summary>
/// <remarks>Compiled into the package of the interface and into each package that makes calls.</remarks>
internal sealed class SessionHistory
{
    private readonly SessionDay[] _days;
    private readonly int _most;

    private SessionHistory(SessionColumns columns, SessionDay[] days, int most, bool hasDropped) =>
        (Columns, _days, _most, HasDropped) = (columns, days, most, hasDropped);

    /// <summary>Whether older days were dropped.</summary>
    public bool HasDropped { get; }

    /// <summary>Number of sessions in the opening request.</summary>
    public int Count => Array.FindLastIndex(_days, day => day.HasForecast) + 1;

    /// <summary>The last day.</summary>
    public DateOnly Session => _days[^1].Session;

    /// <summary>Symbols whose bars of the last day are missing.</summary>
    public IReadOnlyList<string> WaitsFor => _days[^1] is { IsAnswered: false, HasCome: { } come }
        ? [.. Columns.Symbols.Where((_, row) => !come[row])]
        : [];

    /// <summary>Whether no symbol has a bar on the last day.</summary>
    public bool IsEmpty => _days[^1].Values.Take(Columns.OfBars * Columns.Symbols.Count).All(double.IsNaN);

    public SessionColumns Columns { get; }

    /// <summary>Starts with a history that has a forecast.</summary>
    /// <param name="request">The history.</param>
    /// <param name="most">Days that a forecast needs. One more is kept, because a correction may withdraw the last forecast.</param>
    public static SessionHistory Of(SessionRequest request, int most)
    {
        var columns = new SessionColumns(request);
        var sessions = request.Bars.Sessions.Span;
        ReadOnlyMemory<double>[] sent = [.. columns.Of(request.Bars, request.Covariates)];
        var first = Math.Max(0, sessions.Length - 1 - most);
        var days = new SessionDay[sessions.Length - first];
        for (var index = 0; index < days.Length; index++)
        {
            days[index] = new SessionDay
            {
                Session = sessions[first + index],
                Values = Cell(columns, sent, first + index),
                Ahead = index == days.Length - 1 ? SelectAhead(columns, sent, sessions.Length, request.Covariates.FutureSessions.Span) : [],
                IsAnswered = true,
                HasForecast = true,
            };
        }

        return new SessionHistory(columns, days, most, hasDropped: first > 0);
    }

    /// <summary>Returns the history after an accepted push.</summary>
    /// <param name="push">The push.</param>
    /// <param name="hasForecast">Whether its result had a forecast.</param>
    public SessionHistory With(SessionPush push, bool hasForecast)
    {
        var isNew = push.Bars is { } bars && bars.Sessions.Span[0] != Session;
        var day = Merge(isNew ? Next(push) : _days[^1], push, hasForecast);
        SessionDay[] days = isNew ? [.. _days, day] : [.. _days[..^1], day];
        var count = Array.FindLastIndex(days, one => one.HasForecast) + 1;
        var safe = count - 1;
        for (var index = 0; index < safe - 1; index++)
            days[index] = days[index].RemoveAhead();
        var surplus = Math.Max(0, safe - _most);
        return new SessionHistory(Columns, days[surplus..], _most, HasDropped || surplus > 0);
    }

    /// <summary>Returns the request that reopens the session with the days up to the last forecast.</summary>
    public SessionRequest Opening() => Request(Count);

    /// <summary>Returns the pushes to repeat after reopening.</summary>
    public IEnumerable<SessionPush> Pushes() => _days[Count..].Select(Push);

    /// <summary>Returns a request with every day, including the incomplete last one.</summary>
    public SessionRequest Whole() => Request(_days.Length);

    private SessionRequest Request(int count)
    {
        var (symbols, ahead) = (Columns.Symbols.Count, _days[count - 1].Ahead);
        var columns = new double[Columns.Count][];
        for (var column = 0; column < columns.Length; column++)
        {
            var known = column - (Columns.Count - Columns.OfKnown);
            var length = count + (known >= 0 ? ahead.Count : 0);
            columns[column] = new double[symbols * length];
            for (var row = 0; row < symbols; row++)
            {
                for (var index = 0; index < length; index++)
                {
                    columns[column][(row * length) + index] = index < count
                        ? _days[index].Values[(column * symbols) + row]
                        : ahead[index - count].Values[(known * symbols) + row];
                }
            }
        }

        return Columns.Request(columns, [.. _days[..count].Select(day => day.Session)], [.. ahead.Select(day => day.Session)]);
    }

    private SessionPush Push(SessionDay day)
    {
        var symbols = Columns.Symbols.Count;
        int[] rows = [.. Enumerable.Range(0, symbols).Where(row => day.HasCome?[row] ?? true)];
        var columns = new double[Columns.Count][];
        for (var column = 0; column < columns.Length; column++)
        {
            var known = column - (Columns.Count - Columns.OfKnown);
            columns[column] =
            [
                .. rows.SelectMany(row => known < 0
                    ? [day.Values[(column * symbols) + row]]
                    : day.Ahead.Select(one => one.Values[(known * symbols) + row]).Prepend(day.Values[(column * symbols) + row])),
            ];
        }

        DateOnly[] ahead = [.. day.Ahead.Select(one => one.Session)];
        return Columns.Push(columns, [.. rows.Select(row => Columns.Symbols[row])], day.Session, ahead, day.IsAnswered);
    }

    /// <summary>Creates a day before its first bar, with the known covariates that were sent ahead.</summary>
    private SessionDay Next(SessionPush push)
    {
        var (session, symbols) = (push.Bars!.Sessions.Span[0], Columns.Symbols.Count);
        var values = new double[Columns.Count * symbols];
        Array.Fill(values, double.NaN);
        FindSentAhead(session).CopyTo(values.AsSpan((Columns.Count - Columns.OfKnown) * symbols));
        return new SessionDay { Session = session, Values = values, HasCome = new bool[symbols], IsAnswered = false, HasForecast = false };
    }

    private SessionDay Merge(SessionDay day, SessionPush push, bool hasForecast)
    {
        if (push.Bars is not { } bars)
        {
            return new SessionDay
            {
                Session = day.Session,
                Values = day.Values,
                HasCome = day.HasCome,
                Ahead = day.Ahead,
                IsAnswered = true,
                HasForecast = hasForecast,
            };
        }

        var rows = Columns.RowsOf(bars.Symbols);
        ReadOnlyMemory<double>[] sent = [.. Columns.Of(bars, push.Covariates)];
        var come = FindCome(day, rows);
        return new SessionDay
        {
            Session = day.Session,
            Values = ReplaceRows(day.Values, rows, Cell(rows.Length, sent, 0)),
            HasCome = come,
            Ahead = MergeAhead(push.Covariates.FutureSessions.Span, rows, sent),
            IsAnswered = push.Flush || day.IsAnswered || come is null,
            HasForecast = hasForecast,
        };
    }

    /// <summary>Merges the known covariates of later days with those of a push.</summary>
    private (DateOnly Session, double[] Values)[] MergeAhead(ReadOnlySpan<DateOnly> future, int[] rows, ReadOnlyMemory<double>[] sent)
    {
        var ahead = new (DateOnly, double[])[Columns.OfKnown == 0 ? 0 : future.Length];
        for (var index = 0; index < ahead.Length; index++)
            ahead[index] = (future[index], ReplaceRows(FindSentAhead(future[index]), rows, Cell(rows.Length, sent[^Columns.OfKnown..], index + 1)));
        return ahead;
    }

    /// <summary>[K, S] covariates that were sent ahead for a day; NaN where none were.</summary>
    private double[] FindSentAhead(DateOnly session)
    {
        var symbols = Columns.Symbols.Count;
        if (session == Session)
            return _days[^1].Values[((Columns.Count - Columns.OfKnown) * symbols)..];
        foreach (var (day, values) in _days[^1].Ahead)
        {
            if (day == session)
                return values;
        }

        var unknown = new double[Columns.OfKnown * symbols];
        Array.Fill(unknown, double.NaN);
        return unknown;
    }

    private static bool[]? FindCome(SessionDay day, int[] rows)
    {
        if (day.HasCome is null)
            return null;
        bool[] come = [.. day.HasCome];
        foreach (var row in rows)
            come[row] = true;
        return Array.TrueForAll(come, one => one) ? null : come;
    }

    /// <summary>Returns [C, S] values with some rows replaced by [C, P] others.</summary>
    private double[] ReplaceRows(double[] values, int[] rows, double[] others)
    {
        double[] merged = [.. values];
        var symbols = Columns.Symbols.Count;
        for (var column = 0; column < values.Length / symbols; column++)
        {
            for (var index = 0; index < rows.Length; index++)
                merged[(column * symbols) + rows[index]] = others[(column * rows.Length) + index];
        }

        return merged;
    }

    private static (DateOnly Session, double[] Values)[] SelectAhead(
        SessionColumns columns,
        ReadOnlyMemory<double>[] sent,
        int sessions,
        ReadOnlySpan<DateOnly> future)
    {
        var ahead = new (DateOnly, double[])[columns.OfKnown == 0 ? 0 : future.Length];
        for (var index = 0; index < ahead.Length; index++)
            ahead[index] = (future[index], Cell(columns.Symbols.Count, sent[^columns.OfKnown..], sessions + index));
        return ahead;
    }

    private static double[] Cell(SessionColumns columns, ReadOnlyMemory<double>[] sent, int index) => Cell(columns.Symbols.Count, sent, index);

    /// <summary>Returns the [C, P] values of one session of columns [P, T].</summary>
    private static double[] Cell(int rows, ReadOnlyMemory<double>[] columns, int index)
    {
        var values = new double[columns.Length * rows];
        for (var column = 0; column < columns.Length; column++)
        {
            var length = columns[column].Length / rows;
            for (var row = 0; row < rows; row++)
                values[(column * rows) + row] = columns[column].Span[(row * length) + index];
        }

        return values;
    }
}
