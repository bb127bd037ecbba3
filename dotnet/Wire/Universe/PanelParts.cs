namespace Quantra.Client.Wire;

/// <summary>Parts of a request for forecasts: its last sessions, or some of its symbols, with what is beside them.</summary>
internal static class PanelParts
{
    /// <summary>Whether all columns have the lengths that symbols and sessions say.</summary>
    public static bool IsWhole(PredictionRequest request, BarPanel bars)
    {
        var (symbols, sessions) = (bars.Symbols.Count, bars.Sessions.Length);
        var (beside, ahead) = (request.Covariates, request.Covariates.FutureSessions.Length);
        return symbols > 0 && sessions > 0
            && Columns(bars).All(column => column.Length == symbols * sessions)
            && beside.Observed.Values.All(values => values.Length == symbols * sessions)
            && beside.Known.Values.All(values => values.Length == symbols * (sessions + ahead))
            && beside.Numbers.Values.All(values => values.Length == symbols)
            && beside.Categories.Values.All(texts => texts.Count == symbols)
            && (ahead == 0 || beside.FutureSessions.Span[0] > bars.Sessions.Span[^1]);
    }

    /// <summary>The columns that a panel has.</summary>
    public static IEnumerable<ReadOnlyMemory<double>> Columns(BarPanel bars)
    {
        ReadOnlyMemory<double>[] optional = [bars.AdjustedClose, bars.SplitRatio, bars.CashDividend];
        return [bars.Open, bars.High, bars.Low, bars.Close, bars.Volume, .. optional.Where(column => !column.IsEmpty)];
    }

    /// <summary>The request of the last sessions.</summary>
    public static PredictionRequest Last(PredictionRequest request, BarPanel bars, int count)
    {
        var (symbols, beside) = (bars.Symbols.Count, request.Covariates);
        return With(request, bars.Last(count), beside with
        {
            Observed = Each(beside.Observed, values => LastOf(values, symbols, count)),
            Known = Each(beside.Known, values => LastOf(values, symbols, count + beside.FutureSessions.Length)),
        });
    }

    /// <summary>The request of some symbols.</summary>
    public static PredictionRequest Of(PredictionRequest request, BarPanel bars, Rows rows)
    {
        var (sessions, beside) = (bars.Sessions.Length, request.Covariates);
        var part = bars with
        {
            Symbols = rows.Of(bars.Symbols),
            Open = rows.Of(bars.Open, sessions),
            High = rows.Of(bars.High, sessions),
            Low = rows.Of(bars.Low, sessions),
            Close = rows.Of(bars.Close, sessions),
            Volume = rows.Of(bars.Volume, sessions),
            AdjustedClose = rows.Of(bars.AdjustedClose, sessions),
            SplitRatio = rows.Of(bars.SplitRatio, sessions),
            CashDividend = rows.Of(bars.CashDividend, sessions),
        };
        return With(request, part, beside with
        {
            Observed = Each(beside.Observed, values => rows.Of(values, sessions)),
            Known = Each(beside.Known, values => rows.Of(values, sessions + beside.FutureSessions.Length)),
            Numbers = Each(beside.Numbers, values => rows.Of(values, 1)),
            Categories = Each(beside.Categories, rows.Of),
        });
    }

    /// <summary>The same request about other bars; a test holds that nothing of it is left out.</summary>
    private static PredictionRequest With(PredictionRequest request, BarPanel bars, Covariates covariates) => new(request.Model, bars)
    {
        Covariates = covariates,
        RequestId = request.RequestId,
        AllowIncompleteLastBar = request.AllowIncompleteLastBar,
        GapPolicy = request.GapPolicy,
    };

    private static Dictionary<string, T> Each<T>(IReadOnlyDictionary<string, T> values, Func<T, T> of) =>
        values.ToDictionary(one => one.Key, one => of(one.Value));

    private static ReadOnlyMemory<double> LastOf(ReadOnlyMemory<double> values, int symbols, int count)
    {
        var (width, last) = (values.Length / symbols, new double[symbols * count]);
        for (var row = 0; row < symbols; row++)
            values.Span.Slice((row * width) + width - count, count).CopyTo(last.AsSpan(row * count));
        return last;
    }
}
