namespace Quantra.Client;

/// <summary>The fixed properties of a session: symbols, columns, static covariates and reading options.</summary>
/// <remarks>
/// C columns: the columns of bars, then the observed covariates, then the known covariates. The numbers of a day are [C, S], row-major.
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
    private readonly Dictionary<string, int> _indexes;
    private readonly Func<BarPanel, ReadOnlyMemory<double>>[] _bars;
    private readonly string[] _observed;
    private readonly string[] _known;

    /// <summary>Takes the properties of a request, without its bars.</summary>
    public SessionColumns(SessionRequest request)
    {
        string[] symbols = [.. request.Bars.Symbols];
        _indexes = symbols.Select((symbol, row) => (symbol, row)).ToDictionary(one => one.symbol, one => one.row);
        _bars = [.. Every.Where(column => !column(request.Bars).IsEmpty)];
        _observed = [.. request.Covariates.Observed.Keys];
        _known = [.. request.Covariates.Known.Keys];
        _asked = request with { Bars = Empty(request.Bars, symbols), Covariates = SelectStatic(request.Covariates) };
    }

    /// <summary>S names.</summary>
    public IReadOnlyList<string> Symbols => _asked.Bars.Symbols;

    /// <summary>Number of bar columns, which come first.</summary>
    public int OfBars => _bars.Length;

    /// <summary>Number of known covariates, which come last.</summary>
    public int OfKnown => _known.Length;

    /// <summary>C.</summary>
    public int Count => _bars.Length + _observed.Length + _known.Length;

    /// <summary>Returns the rows of pushed symbols.</summary>
    /// <exception cref="KeyNotFoundException">A symbol is not in the session.</exception>
    public int[] RowsOf(IReadOnlyList<string> symbols) => [.. symbols.Select(symbol => _indexes[symbol])];

    /// <summary>Whether the session has the symbol.</summary>
    public bool Has(string symbol) => _indexes.ContainsKey(symbol);

    /// <summary>Whether bars and covariates have exactly the session's columns.</summary>
    public bool Fit(BarPanel bars, Covariates covariates) =>
        Every.Where(column => !column(bars).IsEmpty).SequenceEqual(_bars)
        && _observed.Order().SequenceEqual(covariates.Observed.Keys.Order())
        && _known.Order().SequenceEqual(covariates.Known.Keys.Order());

    /// <summary>Returns every column of bars and covariates, [P, T] each, known ones [P, T + D].</summary>
    public IEnumerable<ReadOnlyMemory<double>> Of(BarPanel bars, Covariates covariates) =>
    [
        .. _bars.Select(column => column(bars)),
        .. _observed.Select(name => covariates.Observed[name]),
        .. _known.Select(name => covariates.Known[name]),
    ];

    /// <summary>Creates the opening request from C columns, [S, T] each, known ones [S, T + D].</summary>
    public SessionRequest Request(double[][] columns, DateOnly[] sessions, DateOnly[] ahead) => _asked with
    {
        Bars = CreateBars(columns, Symbols, sessions),
        Covariates = CreateCovariates(columns, ahead, _asked.Covariates),
    };

    /// <summary>Creates a push from C columns of some symbols, [P, 1] each, known ones [P, 1 + D].</summary>
    public SessionPush Push(double[][] columns, IReadOnlyList<string> symbols, DateOnly session, DateOnly[] ahead, bool flush) =>
        new(CreateBars(columns, symbols, [session]) with { Calendar = "", Currency = "" }, CreateCovariates(columns, ahead, Covariates.None), flush);

    private BarPanel CreateBars(double[][] columns, IReadOnlyList<string> symbols, DateOnly[] sessions)
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
            var index = Array.IndexOf(_bars, Every[which]);
            return index < 0 ? default(ReadOnlyMemory<double>) : columns[index];
        }
    }

    private Covariates CreateCovariates(double[][] columns, DateOnly[] ahead, Covariates others) => others with
    {
        Observed = SelectNamed(_observed, columns.AsSpan(_bars.Length)),
        Known = SelectNamed(_known, columns.AsSpan(_bars.Length + _observed.Length)),
        FutureSessions = ahead,
    };

    private static Dictionary<string, ReadOnlyMemory<double>> SelectNamed(string[] names, ReadOnlySpan<double[]> columns)
    {
        var named = new Dictionary<string, ReadOnlyMemory<double>>();
        for (var index = 0; index < names.Length; index++)
            named.Add(names[index], columns[index]);
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

    private static Covariates SelectStatic(Covariates covariates) => new()
    {
        Numbers = covariates.Numbers.ToDictionary(one => one.Key, one => new ReadOnlyMemory<double>(one.Value.ToArray())),
        Categories = covariates.Categories.ToDictionary(one => one.Key, one => (IReadOnlyList<string>)[.. one.Value]),
    };
}
