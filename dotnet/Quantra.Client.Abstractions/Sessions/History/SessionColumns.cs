namespace Quantra.Client;

/// <summary>What of a session never changes: its symbols, its columns, its static covariates, and how its bars are read.</summary>
/// <remarks>
/// C columns: those of bars that the history has, then its observed covariates, then its known ones. The numbers of a day are
/// [C, S], row-major.
/// </remarks>
internal sealed class SessionColumns
{
    private static readonly Func<BarPanel, ReadOnlyMemory<double>>[] Every =
    [
        bars => bars.Open,
        bars => bars.High,
        bars => bars.Low,
        bars => bars.Close,
        bars => bars.Volume,
        bars => bars.AdjustedClose,
        bars => bars.SplitRatio,
        bars => bars.CashDividend,
    ];

    private readonly SessionRequest _asked;
    private readonly Dictionary<string, int> _places;
    private readonly Func<BarPanel, ReadOnlyMemory<double>>[] _bars;
    private readonly string[] _observed;
    private readonly string[] _known;

    /// <summary>Those of a request, whose bars are not kept.</summary>
    public SessionColumns(SessionRequest request)
    {
        string[] symbols = [.. request.Bars.Symbols];
        _places = symbols.Select((symbol, row) => (symbol, row)).ToDictionary(one => one.symbol, one => one.row);
        _bars = [.. Every.Where(column => !column(request.Bars).IsEmpty)];
        _observed = [.. request.Covariates.Observed.Keys];
        _known = [.. request.Covariates.Known.Keys];
        _asked = request with { Bars = Empty(request.Bars, symbols), Covariates = Static(request.Covariates) };
    }

    /// <summary>S names.</summary>
    public IReadOnlyList<string> Symbols => _asked.Bars.Symbols;

    /// <summary>How many columns are of bars; they are the first.</summary>
    public int OfBars => _bars.Length;

    /// <summary>How many are of covariates that are known ahead; they are the last.</summary>
    public int OfKnown => _known.Length;

    /// <summary>C.</summary>
    public int Count => _bars.Length + _observed.Length + _known.Length;

    /// <summary>The rows of symbols that are pushed.</summary>
    /// <exception cref="KeyNotFoundException">One is not among the session's.</exception>
    public int[] RowsOf(IReadOnlyList<string> symbols) => [.. symbols.Select(symbol => _places[symbol])];

    /// <summary>Whether bars are of this symbol.</summary>
    public bool Has(string symbol) => _places.ContainsKey(symbol);

    /// <summary>Whether bars and covariates have the session's columns, and no others.</summary>
    public bool Fit(BarPanel bars, Covariates covariates) =>
        Every.Where(column => !column(bars).IsEmpty).SequenceEqual(_bars)
        && _observed.Order().SequenceEqual(covariates.Observed.Keys.Order())
        && _known.Order().SequenceEqual(covariates.Known.Keys.Order());

    /// <summary>Every column of bars and of what goes with them, [P, T] each, those known ahead [P, T + D].</summary>
    public IEnumerable<ReadOnlyMemory<double>> Of(BarPanel bars, Covariates covariates) =>
    [
        .. _bars.Select(column => column(bars)),
        .. _observed.Select(name => covariates.Observed[name]),
        .. _known.Select(name => covariates.Known[name]),
    ];

    /// <summary>The request for a session of these columns.</summary>
    /// <param name="columns">C columns, [S, T] each, those known ahead [S, T + D].</param>
    /// <param name="sessions">[T]</param>
    /// <param name="ahead">[D]</param>
    public SessionRequest Request(double[][] columns, DateOnly[] sessions, DateOnly[] ahead) => _asked with
    {
        Bars = BarsOf(columns, Symbols, sessions),
        Covariates = CovariatesOf(columns, ahead, _asked.Covariates),
    };

    /// <summary>The push of some symbols' columns of a day.</summary>
    /// <param name="columns">C columns, [P, 1] each, those known ahead [P, 1 + D].</param>
    /// <param name="symbols">P names.</param>
    /// <param name="session">The day.</param>
    /// <param name="ahead">[D]</param>
    /// <param name="flush">As in a push.</param>
    public SessionPush Push(double[][] columns, IReadOnlyList<string> symbols, DateOnly session, DateOnly[] ahead, bool flush) =>
        new(BarsOf(columns, symbols, [session]) with { Calendar = "", Currency = "" }, CovariatesOf(columns, ahead, Covariates.None), flush);

    private BarPanel BarsOf(double[][] columns, IReadOnlyList<string> symbols, DateOnly[] sessions)
    {
        return _asked.Bars with
        {
            Symbols = symbols,
            Sessions = sessions,
            Open = Column(0),
            High = Column(1),
            Low = Column(2),
            Close = Column(3),
            Volume = Column(4),
            AdjustedClose = Column(5),
            SplitRatio = Column(6),
            CashDividend = Column(7),
        };

        ReadOnlyMemory<double> Column(int which)
        {
            var place = Array.IndexOf(_bars, Every[which]);
            return place < 0 ? default(ReadOnlyMemory<double>) : columns[place];
        }
    }

    private Covariates CovariatesOf(double[][] columns, DateOnly[] ahead, Covariates others) => others with
    {
        Observed = Named(_observed, columns.AsSpan(_bars.Length)),
        Known = Named(_known, columns.AsSpan(_bars.Length + _observed.Length)),
        FutureSessions = ahead,
    };

    private static Dictionary<string, ReadOnlyMemory<double>> Named(string[] names, ReadOnlySpan<double[]> columns)
    {
        var named = new Dictionary<string, ReadOnlyMemory<double>>();
        for (var place = 0; place < names.Length; place++)
            named.Add(names[place], columns[place]);
        return named;
    }

    private static BarPanel Empty(BarPanel bars, string[] symbols) => bars with
    {
        Symbols = Array.AsReadOnly(symbols),
        Sessions = default,
        Open = default,
        High = default,
        Low = default,
        Close = default,
        Volume = default,
        AdjustedClose = default,
        SplitRatio = default,
        CashDividend = default,
    };

    private static Covariates Static(Covariates covariates) => new()
    {
        Numbers = covariates.Numbers.ToDictionary(one => one.Key, one => new ReadOnlyMemory<double>(one.Value.ToArray())),
        Categories = covariates.Categories.ToDictionary(one => one.Key, one => (IReadOnlyList<string>)[.. one.Value]),
    };
}
