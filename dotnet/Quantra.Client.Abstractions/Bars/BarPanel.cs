namespace Quantra.Client;

/// <summary>Daily bars of S symbols on one axis of T sessions, oldest first.</summary>
/// <remarks>
/// Every column is row-major [S, T]. A bar whose fields are all NaN means that the symbol had no bar that day. Columns are sent without a
/// copy, so do not change the arrays before the call has completed. The predictor validates the bars, not this type.
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

    /// <summary>[S, T] number of shares traded; NaN in a bar with prices = unknown.</summary>
    public required ReadOnlyMemory<double> Volume { get; init; }

    /// <summary>[S, T] close adjusted for splits and dividends, on any scale; empty = none. Do not combine it with the next two.</summary>
    public ReadOnlyMemory<double> AdjustedClose { get; init; }

    /// <summary>[S, T] 3 on the day of a 3:1 split, otherwise 1 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> SplitRatio { get; init; }

    /// <summary>[S, T] cash paid per share, on the ex-date, otherwise 0 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> CashDividend { get; init; }

    /// <summary>Exchange code, for example "XNYS"; empty = that of the model.</summary>
    public string Calendar { get; init; } = "";

    /// <summary>Currency code of the prices; empty = unknown.</summary>
    public string Currency { get; init; } = "";

    /// <summary>Reads a CSV file with one row per bar, oldest first within each symbol.</summary>
    /// <param name="path">
    /// Columns, in any case and order: symbol or ticker (optional for a single symbol, which then is the file name in upper case), date
    /// (2013-12-31 or 20131231, or a UTC time if the days of the week determine the exchange's day), open, high, low, close, volume, and
    /// optionally adj_close, or split_ratio and cash_dividend. Common other names, for example timestamp or adjClose, are accepted. Other
    /// columns are ignored. An empty cell is NaN.
    /// </param>
    /// <returns>A panel over all dates of the file. A symbol without a row for a date has no bar there.</returns>
    /// <exception cref="QuantraException">
    /// BARS_INVALID: the message names row, column and value, and a command that converts files of other programs.
    /// </exception>
    public static BarPanel ReadCsv(string path)
    {
        ArgumentException.ThrowIfNullOrEmpty(path);
        return BarsCsvReader.Read(path, CancellationToken.None);
    }

    /// <summary>Reads a CSV file on a pool thread, so that a large file does not block a user interface.</summary>
    /// <param name="path">As for <see cref="ReadCsv"/>.</param>
    /// <param name="cancellationToken">Stops reading between two rows.</param>
    /// <returns>As for <see cref="ReadCsv"/>.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the message names row, column and value.</exception>
    public static Task<BarPanel> ReadCsvAsync(string path, CancellationToken cancellationToken = default)
    {
        ArgumentException.ThrowIfNullOrEmpty(path);
        return Task.Run(() => BarsCsvReader.Read(path, cancellationToken), cancellationToken);
    }

    /// <summary>Selects one symbol's bars.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <returns>Its bars, one per session of the panel.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the panel does not have the symbol; the message lists those that it has.</exception>
    public BarSeries Select(string symbol)
    {
        var row = FindRow(symbol);
        return new BarSeries
        {
            Symbol = symbol,
            Sessions = Sessions,
            Open = SelectRow(Open, row),
            High = SelectRow(High, row),
            Low = SelectRow(Low, row),
            Close = SelectRow(Close, row),
            Volume = SelectRow(Volume, row),
            AdjustedClose = SelectRow(AdjustedClose, row),
            SplitRatio = SelectRow(SplitRatio, row),
            CashDividend = SelectRow(CashDividend, row),
            Calendar = Calendar,
            Currency = Currency,
        };
    }

    /// <summary>Selects several symbols' bars, in the given order.</summary>
    /// <param name="symbols">Some of <see cref="Symbols"/>.</param>
    /// <returns>A panel of copied columns, with every session of this one.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the panel does not have a symbol; the message lists those that it has.</exception>
    public BarPanel Select(IReadOnlyList<string> symbols)
    {
        ArgumentNullException.ThrowIfNull(symbols);
        int[] rows = [.. symbols.Select(FindRow)];
        return SelectCells([.. symbols], rows, ..);
    }

    /// <summary>Returns the most recent sessions of every symbol.</summary>
    /// <param name="count">Number of sessions, at least 1. If there are fewer, all are returned.</param>
    /// <returns>A shorter panel with copied columns.</returns>
    public BarPanel Last(int count)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(count, 1);
        return SelectSessions(Math.Max(0, Sessions.Length - count)..);
    }

    /// <summary>Returns the sessions up to a day, inclusive.</summary>
    /// <param name="last">The last day.</param>
    /// <returns>A shorter panel with copied columns.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the panel starts after that day.</exception>
    public BarPanel Until(DateOnly last) => Between(DateOnly.MinValue, last);

    /// <summary>Returns the sessions between two days, both included.</summary>
    /// <param name="first">The first day.</param>
    /// <param name="last">The last day.</param>
    /// <returns>A shorter panel with copied columns.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the range is empty; the message names the panel's sessions.</exception>
    public BarPanel Between(DateOnly first, DateOnly last) => SelectSessions(SessionRange.Between(Sessions.Span, first, last));

    /// <inheritdoc/>
    public bool Equals(BarPanel? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "bars of AAPL, IBM; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
    public override string ToString() => $"bars of {MessageFormat.Symbols(Symbols)}; {MessageFormat.Days(Sessions.Span)}";

    private int FindRow(string symbol)
    {
        for (var row = 0; row < Symbols.Count; row++)
        {
            if (Symbols[row] == symbol)
                return row;
        }

        throw QuantraError.BadBars($"no bars of {symbol}; the panel has {MessageFormat.First(Symbols)}").ToException();
    }

    private BarPanel SelectSessions(Range sessions)
    {
        int[] rows = [.. Enumerable.Range(0, Symbols.Count)];
        return SelectCells(Symbols, rows, sessions);
    }

    /// <summary>Copies some rows and sessions of every column.</summary>
    private BarPanel SelectCells(IReadOnlyList<string> symbols, int[] rows, Range sessions)
    {
        var (start, length) = sessions.GetOffsetAndLength(Sessions.Length);
        return this with
        {
            Symbols = symbols,
            Sessions = Sessions[sessions],
            Open = SelectColumn(Open),
            High = SelectColumn(High),
            Low = SelectColumn(Low),
            Close = SelectColumn(Close),
            Volume = SelectColumn(Volume),
            AdjustedClose = SelectColumn(AdjustedClose),
            SplitRatio = SelectColumn(SplitRatio),
            CashDividend = SelectColumn(CashDividend),
        };

        ReadOnlyMemory<double> SelectColumn(ReadOnlyMemory<double> column)
        {
            if (column.IsEmpty)
                return column;
            var part = new double[rows.Length * length];
            for (var index = 0; index < rows.Length; index++)
                SelectRow(column, rows[index]).Span.Slice(start, length).CopyTo(part.AsSpan(index * length));
            return part;
        }
    }

    private ReadOnlyMemory<double> SelectRow(ReadOnlyMemory<double> column, int row) =>
        column.IsEmpty ? column : column.Slice(row * Sessions.Length, Sessions.Length);

    private object?[] Parts() =>
    [
        ValueEquality.Of(Symbols),
        ValueEquality.Of(Sessions),
        ValueEquality.Of(Open),
        ValueEquality.Of(High),
        ValueEquality.Of(Low),
        ValueEquality.Of(Close),
        ValueEquality.Of(Volume),
        ValueEquality.Of(AdjustedClose),
        ValueEquality.Of(SplitRatio),
        ValueEquality.Of(CashDividend),
        Calendar,
        Currency,
    ];
}
