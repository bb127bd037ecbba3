namespace Quantra.Client;

/// <summary>Daily bars of one symbol, oldest first.</summary>
/// <remarks>A bar whose fields are all NaN means that there was no bar that day. The predictor validates the bars, not this type.</remarks>
public sealed record BarSeries
{
    /// <summary>The symbol's name.</summary>
    public required string Symbol { get; init; }

    /// <summary>[T] trading days, oldest first.</summary>
    public required ReadOnlyMemory<DateOnly> Sessions { get; init; }

    /// <summary>[T] first price of the day, in the bars' currency.</summary>
    public required ReadOnlyMemory<double> Open { get; init; }

    /// <summary>[T] highest price of the day.</summary>
    public required ReadOnlyMemory<double> High { get; init; }

    /// <summary>[T] lowest price of the day.</summary>
    public required ReadOnlyMemory<double> Low { get; init; }

    /// <summary>[T] last price of the day, not adjusted.</summary>
    public required ReadOnlyMemory<double> Close { get; init; }

    /// <summary>[T] number of shares traded.</summary>
    public required ReadOnlyMemory<double> Volume { get; init; }

    /// <summary>[T] close adjusted for splits and dividends, on any scale; empty = none. Do not combine it with the next two.</summary>
    public ReadOnlyMemory<double> AdjustedClose { get; init; }

    /// <summary>[T] 3 on the day of a 3:1 split, otherwise 1 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> SplitRatio { get; init; }

    /// <summary>[T] cash paid per share, on the ex-date, otherwise 0 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> CashDividend { get; init; }

    /// <summary>Exchange code, for example "XNYS"; empty = that of the model.</summary>
    public string Calendar { get; init; } = "";

    /// <summary>Currency code of the prices; empty = unknown.</summary>
    public string Currency { get; init; } = "";

    /// <summary>Returns the most recent sessions, without a copy.</summary>
    /// <param name="count">Number of sessions, at least 1. If there are fewer, all are returned.</param>
    /// <returns>A shorter series.</returns>
    public BarSeries Last(int count)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(count, 1);
        return Part(Math.Max(0, Sessions.Length - count)..);
    }

    /// <summary>Returns the sessions up to a day, inclusive, without a copy.</summary>
    /// <param name="last">The last day.</param>
    /// <returns>A shorter series.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the series starts after that day.</exception>
    public BarSeries Until(DateOnly last) => Between(DateOnly.MinValue, last);

    /// <summary>Returns the sessions between two days, both included, without a copy.</summary>
    /// <param name="first">The first day.</param>
    /// <param name="last">The last day.</param>
    /// <returns>A shorter series.</returns>
    /// <exception cref="QuantraException">BARS_INVALID: the range is empty; the message names the sessions of the series.</exception>
    public BarSeries Between(DateOnly first, DateOnly last) => Part(SessionRange.Between(Sessions.Span, first, last));

    /// <summary>Returns the same bars as a panel of one symbol, without a copy.</summary>
    /// <returns>A panel with one row.</returns>
    public BarPanel ToPanel() => new()
    {
        Symbols = [Symbol],
        Sessions = Sessions,
        Open = Open,
        High = High,
        Low = Low,
        Close = Close,
        Volume = Volume,
        AdjustedClose = AdjustedClose,
        SplitRatio = SplitRatio,
        CashDividend = CashDividend,
        Calendar = Calendar,
        Currency = Currency,
    };

    /// <inheritdoc/>
    public bool Equals(BarSeries? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "bars of AAPL; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
    public override string ToString() => ToPanel().ToString();

    private BarSeries Part(Range sessions)
    {
        return this with
        {
            Sessions = Sessions[sessions],
            Open = Cut(Open),
            High = Cut(High),
            Low = Cut(Low),
            Close = Cut(Close),
            Volume = Cut(Volume),
            AdjustedClose = Cut(AdjustedClose),
            SplitRatio = Cut(SplitRatio),
            CashDividend = Cut(CashDividend),
        };

        ReadOnlyMemory<double> Cut(ReadOnlyMemory<double> column) => column.IsEmpty ? column : column[sessions];
    }

    private object?[] Parts() =>
    [
        Symbol,
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
