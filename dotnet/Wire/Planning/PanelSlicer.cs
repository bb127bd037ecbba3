namespace Quantra.Client.Wire;

/// <summary>Takes the last sessions or some symbols out of a request, covariates included.</summary>
internal static class PanelSlicer
{
    /// <summary>Whether all columns have the lengths that follow from symbols and sessions.</summary>
    public static bool IsConsistent(PredictionRequest request, BarPanel bars)
    {
        var (symbols, sessions) = (bars.Symbols.Count, bars.Sessions.Length);
        var (covariates, futureSessions) = (request.Covariates, request.Covariates.FutureSessions.Length);
        return symbols > 0 && sessions > 0
            && Columns(bars).All(column => column.Length == symbols * sessions)
            && covariates.Observed.Values.All(values => values.Length == symbols * sessions)
            && covariates.Known.Values.All(values => values.Length == symbols * (sessions + futureSessions))
            && covariates.Numbers.Values.All(values => values.Length == symbols)
            && covariates.Categories.Values.All(texts => texts.Count == symbols)
            && (futureSessions == 0 || covariates.FutureSessions.Span[0] > bars.Sessions.Span[^1]);
    }

    public static IEnumerable<ReadOnlyMemory<double>> Columns(BarPanel bars)
    {
        ReadOnlyMemory<double>[] optional = [bars.AdjustedClose, bars.SplitRatio, bars.CashDividend];
        return [bars.Open, bars.High, bars.Low, bars.Close, bars.Volume, .. optional.Where(column => !column.IsEmpty)];
    }

    public static PredictionRequest TakeLast(PredictionRequest request, BarPanel bars, int count)
    {
        var (symbols, covariates) = (bars.Symbols.Count, request.Covariates);
        return WithBars(request, bars.Last(count), covariates with
        {
            Observed = MapValues(covariates.Observed, values => TakeLast(values, symbols, count)),
            Known = MapValues(covariates.Known, values => TakeLast(values, symbols, count + covariates.FutureSessions.Length)),
        });
    }

    public static PredictionRequest Slice(PredictionRequest request, BarPanel bars, RowRange rows)
    {
        var (sessions, covariates) = (bars.Sessions.Length, request.Covariates);
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
        return WithBars(request, part, covariates with
        {
            Observed = MapValues(covariates.Observed, values => rows.Of(values, sessions)),
            Known = MapValues(covariates.Known, values => rows.Of(values, sessions + covariates.FutureSessions.Length)),
            Numbers = MapValues(covariates.Numbers, values => rows.Of(values, 1)),
            Categories = MapValues(covariates.Categories, rows.Of),
        });
    }

    /// <summary>Copies the request with other bars. A test checks that no property is left out.</summary>
    private static PredictionRequest WithBars(PredictionRequest request, BarPanel bars, Covariates covariates) => new(request.Model, bars)
    {
        Covariates = covariates,
        RequestId = request.RequestId,
        AllowIncompleteLastBar = request.AllowIncompleteLastBar,
        AcceptSuspectBars = request.AcceptSuspectBars,
        GapPolicy = request.GapPolicy,
    };

    private static Dictionary<string, T> MapValues<T>(IReadOnlyDictionary<string, T> values, Func<T, T> map) =>
        values.ToDictionary(pair => pair.Key, pair => map(pair.Value));

    private static ReadOnlyMemory<double> TakeLast(ReadOnlyMemory<double> values, int symbols, int count)
    {
        var (width, last) = (values.Length / symbols, new double[symbols * count]);
        for (var row = 0; row < symbols; row++)
            values.Span.Slice((row * width) + width - count, count).CopyTo(last.AsSpan(row * count));
        return last;
    }
}
