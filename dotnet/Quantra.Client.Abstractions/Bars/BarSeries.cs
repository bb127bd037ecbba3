namespace Quantra.Client;

/// <summary>Daily bars of one symbol, oldest first.</summary>
/// <remarks>A bar whose fields are all NaN means that there was no bar that day. The predictor checks the bars, not this type.</remarks>
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

    /// <summary>[T] close adjusted for splits and dividends, on any scale; empty = none. Never together with the next two.</summary>
    public ReadOnlyMemory<double> AdjustedClose { get; init; }

    /// <summary>[T] 3 on the day of a 3:1 split, otherwise 1 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> SplitRatio { get; init; }

    /// <summary>[T] cash paid per share, on the ex-date, otherwise 0 or NaN; empty = none.</summary>
    public ReadOnlyMemory<double> CashDividend { get; init; }

    /// <summary>Exchange code, such as "XNYS"; empty = the model's.</summary>
    public string Calendar { get; init; } = "";

    /// <summary>Currency code of the prices; empty = unknown.</summary>
    public string Currency { get; init; } = "";

    /// <summary>The most recent sessions, without a copy.</summary>
    /// <param name="count">How many, at least 1; all of them if there are fewer.</param>
    /// <returns>A shorter series.</returns>
    public BarSeries Last(int count)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(count, 1);
        var start = Math.Max(0, Sessions.Length - count);
        return this with
        {
            Sessions = Sessions[start..],
            Open = From(Open, start),
            High = From(High, start),
            Low = From(Low, start),
            Close = From(Close, start),
            Volume = From(Volume, start),
            AdjustedClose = From(AdjustedClose, start),
            SplitRatio = From(SplitRatio, start),
            CashDividend = From(CashDividend, start),
        };
    }

    /// <summary>The same bars as a panel of one symbol, without a copy.</summary>
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
    public bool Equals(BarSeries? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "bars of AAPL; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
    public override string ToString() => ToPanel().ToString();

    private static ReadOnlyMemory<double> From(ReadOnlyMemory<double> column, int start) =>
        column.IsEmpty ? column : column[start..];

    private object?[] Parts() =>
    [
        Symbol,
        ByValue.Of(Sessions),
        ByValue.Of(Open),
        ByValue.Of(High),
        ByValue.Of(Low),
        ByValue.Of(Close),
        ByValue.Of(Volume),
        ByValue.Of(AdjustedClose),
        ByValue.Of(SplitRatio),
        ByValue.Of(CashDividend),
        Calendar,
        Currency,
    ];
}
