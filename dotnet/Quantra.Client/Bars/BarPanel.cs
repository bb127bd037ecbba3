namespace Quantra.Client;

/// <summary>Daily bars of S symbols on one axis of T sessions, oldest first.</summary>
/// <remarks>
/// Every column is row-major [S, T]; a bar whose fields are all NaN means that the symbol had none that day. Columns are
/// sent without a copy: leave the arrays alone until the call is over. The predictor checks the bars, not this type.
/// </remarks>
public sealed record BarPanel
{
    /// <summary>S unique names.</summary>
    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>[T] trading days, oldest first.</summary>
    public required ReadOnlyMemory<DateOnly> Sessions { get; init; }

    /// <summary>[S, T] first price of the day, in the bars' currency.</summary>
    public required ReadOnlyMemory<double> Open { get; init; }

    /// <summary>[S, T] highest price of the day.</summary>
    public required ReadOnlyMemory<double> High { get; init; }

    /// <summary>[S, T] lowest price of the day.</summary>
    public required ReadOnlyMemory<double> Low { get; init; }

    /// <summary>[S, T] last price of the day, not adjusted.</summary>
    public required ReadOnlyMemory<double> Close { get; init; }

    /// <summary>[S, T] shares traded.</summary>
    public required ReadOnlyMemory<double> Volume { get; init; }

    /// <summary>[S, T] close adjusted for splits and dividends, on any scale; empty = none. Never beside the two following.</summary>
    public ReadOnlyMemory<double> AdjustedClose { get; init; }

    /// <summary>[S, T] 3 on the day of a 3:1 split, else 1 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> SplitRatio { get; init; }

    /// <summary>[S, T] paid per share on the ex-date, else 0 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> CashDividend { get; init; }

    /// <summary>Exchange code such as "XNYS"; empty = the model's.</summary>
    public string Calendar { get; init; } = "";

    /// <summary>Code of the quote currency; empty = unknown.</summary>
    public string Currency { get; init; } = "";

    /// <summary>Reads a CSV file of one row a bar, oldest first within each symbol.</summary>
    /// <param name="path">
    /// Columns, in any case and order: symbol or ticker (optional when there is one: then the file's name in capitals), date
    /// (2013-12-31 or 20131231), open, high, low, close, volume, and adj_close, or split_ratio and cash_dividend. Other
    /// columns are ignored. An empty cell is NaN.
    /// </param>
    /// <returns>A panel over all dates of the file; a symbol without a row on one of them has no bar there.</returns>
    /// <exception cref="QuantraException">BARS_INVALID, naming row, column and value.</exception>
    public static BarPanel ReadCsv(string path)
    {
        ArgumentException.ThrowIfNullOrEmpty(path);
        return BarsCsv.Read(path);
    }

    /// <summary>Takes one symbol's bars out.</summary>
    /// <param name="symbol">A symbol of the panel.</param>
    /// <returns>Its bars on the panel's sessions.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the panel has no such symbol; the message lists those it has.</exception>
    public BarSeries Select(string symbol)
    {
        var row = RowOf(symbol);
        return new BarSeries
        {
            Symbol = symbol,
            Sessions = Sessions,
            Open = Row(Open, row),
            High = Row(High, row),
            Low = Row(Low, row),
            Close = Row(Close, row),
            Volume = Row(Volume, row),
            AdjustedClose = Row(AdjustedClose, row),
            SplitRatio = Row(SplitRatio, row),
            CashDividend = Row(CashDividend, row),
            Calendar = Calendar,
            Currency = Currency,
        };
    }

    private int RowOf(string symbol)
    {
        for (var row = 0; row < Symbols.Count; row++)
        {
            if (Symbols[row] == symbol)
                return row;
        }

        throw QuantraError.BadBars($"no bars of {symbol}; the panel has {Listed.First(Symbols)}").ToException();
    }

    private ReadOnlyMemory<double> Row(ReadOnlyMemory<double> column, int row) =>
        column.IsEmpty ? column : column.Slice(row * Sessions.Length, Sessions.Length);
}
