using System.Globalization;
using System.Text;

namespace Quantra.Client;

/// <summary>Quantiles of a target for S symbols, H horizons and Q quantiles.</summary>
/// <remarks>A symbol that could not be forecast has NaN rows, and its error in <see cref="Refusals"/>.</remarks>
public sealed record Forecast
{
    /// <summary>S names, in the order of the request.</summary>
    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>Session of the last bar; null if feature windows were sent without it.</summary>
    public required DateOnly? AsOf { get; init; }

    /// <summary>[H] session on which each horizon ends; empty if <see cref="AsOf"/> is null.</summary>
    public required IReadOnlyList<DateOnly> TargetSessions { get; init; }

    /// <summary>Sessions between the last bar and the session from which horizons, and so returns, are counted.</summary>
    public required int Lag { get; init; }

    /// <summary>The session from which horizons are counted: <see cref="AsOf"/> if the lag is 0; null if unknown.</summary>
    public required DateOnly? BaseSession { get; init; }

    /// <summary>H horizons in trading days.</summary>
    public required IReadOnlyList<int> Horizons { get; init; }

    /// <summary>Q levels, in increasing order, each in (0, 1).</summary>
    public required IReadOnlyList<double> Quantiles { get; init; }

    /// <summary>"log-return" or "log-volatility".</summary>
    public required string TargetKind { get; init; }

    /// <summary>[S, H, Q] in the target's unit, row-major, non-decreasing along Q: log returns, or logs of daily volatilities.</summary>
    public required ReadOnlyMemory<double> Values { get; init; }

    /// <summary>[S, H, Q] log returns from the close of <see cref="BaseSession"/>; null for other targets.</summary>
    /// <remarks>exp(r) - 1 is the simple return, the one to show as a percentage: <see cref="SimpleReturn"/>.</remarks>
    public required ReadOnlyMemory<double>? Returns { get; init; }

    /// <summary>[S, H, Q] in the bars' currency; null without a last close, with a lag, and for targets other than returns.</summary>
    public required ReadOnlyMemory<double>? Prices { get; init; }

    /// <summary>[S] close of <see cref="AsOf"/>, not adjusted; null if unknown. With a lag, returns count from a later close.</summary>
    public required ReadOnlyMemory<double>? AnchorPrice { get; init; }

    /// <summary>Name of the model that answered.</summary>
    public required string Model { get; init; }

    /// <summary>Version of the model that answered.</summary>
    public required int Version { get; init; }

    /// <summary>SHA-256 of the model's weights.</summary>
    public required string WeightsHash { get; init; }

    /// <summary>Warnings about the input or the forecast.</summary>
    public required IReadOnlyList<string> Warnings { get; init; }

    /// <summary>
    /// Identifies this forecast: a hash of weights, input, symbols and engine. For a panel that was sent in several calls, a hash of the ids of
    /// its parts.
    /// </summary>
    public required string ForecastId { get; init; }

    /// <summary>[S, H] from a model that ranks a panel, larger = expected to do better than the others; null from other models.</summary>
    public required ReadOnlyMemory<double>? Scores { get; init; }

    /// <summary>[S, H] rank by score, 1 = best, 0 = the symbol could not be forecast; null from models that do not rank.</summary>
    public required ReadOnlyMemory<int>? Ranks { get; init; }

    /// <summary>Hash of the symbols that were ranked together; ranks with another hash are not comparable. Empty = no ranks.</summary>
    public required string UniverseHash { get; init; }

    /// <summary>Errors of the symbols without a forecast, as a request for that symbol only would return them.</summary>
    public required IReadOnlyDictionary<string, QuantraError> Refusals { get; init; }

    /// <summary>The model's skill on held-out days; null if its card does not state it.</summary>
    public required Skill? Skill { get; init; }

    /// <summary>Session from which horizons count, for example "the close of 2013-03-04, 1 session after the last bar".</summary>
    public string CountedFrom
    {
        get
        {
            var what = Returns is null ? "session" : "close";
            if (Lag == 0)
                return $"the last {what}";
            var day = BaseSession is { } session ? string.Create(CultureInfo.InvariantCulture, $" of {session:yyyy-MM-dd},") : "";
            return $"the {what}{day} {Lag} session{(Lag == 1 ? "" : "s")} after the last bar";
        }
    }

    /// <summary>Returns one value of the forecast.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="horizon">One of <see cref="Horizons"/>.</param>
    /// <param name="quantile">One of <see cref="Quantiles"/>.</param>
    /// <returns>Value in the target's unit, for example a log return; NaN = no forecast for this symbol.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the symbol, horizon or quantile.</exception>
    public double Value(string symbol, int horizon, double quantile) => Values.Span[IndexOf(symbol, horizon, quantile)];

    /// <summary>Returns one price of the forecast.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="horizon">One of <see cref="Horizons"/>.</param>
    /// <param name="quantile">One of <see cref="Quantiles"/>.</param>
    /// <returns>Price in the bars' currency; NaN = no forecast for this symbol, or no prices.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the symbol, horizon or quantile.</exception>
    public double Price(string symbol, int horizon, double quantile) => PriceAt(IndexOf(symbol, horizon, quantile));

    /// <summary>Returns one value of the forecast as a simple return, to show as a percentage.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="horizon">One of <see cref="Horizons"/>.</param>
    /// <param name="quantile">One of <see cref="Quantiles"/>.</param>
    /// <returns>0.15 = 15 %, from <see cref="CountedFrom"/>; NaN = no forecast for this symbol, or the target is not a return.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the symbol, horizon or quantile.</exception>
    public double SimpleReturn(string symbol, int horizon, double quantile) => SimpleReturnAt(IndexOf(symbol, horizon, quantile));

    /// <summary>Returns a symbol's score relative to the others of its panel.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="horizon">One of <see cref="Horizons"/>.</param>
    /// <returns>Score without a unit, larger = better; NaN = no forecast for this symbol, or the model does not rank.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the symbol or horizon.</exception>
    public double Score(string symbol, int horizon) => ScoreAt(IndexOf(symbol, horizon));

    /// <summary>Returns a symbol's rank by score.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="horizon">One of <see cref="Horizons"/>.</param>
    /// <returns>1 = best; 0 = no forecast for this symbol, or the model does not rank.</returns>
    /// <exception cref="ArgumentException">The forecast does not have the symbol or horizon.</exception>
    public int Rank(string symbol, int horizon) => RankAt(IndexOf(symbol, horizon));

    /// <summary>Returns every number of the forecast with its symbol, horizon and quantile.</summary>
    /// <returns>One row per symbol, horizon and quantile.</returns>
    public IReadOnlyList<ForecastRow> Table()
    {
        var rows = new List<ForecastRow>(Values.Length);
        for (var cell = 0; cell < Values.Length; cell++)
            rows.Add(RowAt(cell));
        return rows;
    }

    /// <summary>Returns the forecast as columns for a data frame: arrays by name, with one element per row of <see cref="Table"/>.</summary>
    /// <returns>
    /// In this order: symbol (string), horizon (int, trading days), quantile (double), date (DateOnly, on which the horizon ends), value (double,
    /// in the target's unit), return (double, simple: 0.15 = 15 %), price (double), score (double), rank (int). Columns that the forecast does
    /// not have are left out.
    /// </returns>
    public IReadOnlyDictionary<string, Array> ToColumns()
    {
        var rows = Table();
        var columns = new Dictionary<string, Array>
        {
            ["symbol"] = Column(row => row.Symbol),
            ["horizon"] = Column(row => row.Horizon),
            ["quantile"] = Column(row => row.Quantile),
        };
        if (TargetSessions.Count > 0)
            columns["date"] = Column(row => row.Session!.Value);
        columns["value"] = Column(row => row.Value);
        if (Returns is not null)
            columns["return"] = Enumerable.Range(0, rows.Count).Select(SimpleReturnAt).ToArray();
        if (Prices is not null)
            columns["price"] = Column(row => row.Price);
        if (Scores is not null)
            columns["score"] = Column(row => row.Score);
        if (Ranks is not null)
            columns["rank"] = Column(row => row.Rank);
        return columns.AsReadOnly();

        T[] Column<T>(Func<ForecastRow, T> cell) => [.. rows.Select(cell)];
    }

    /// <summary>Formats a table with one line per symbol and horizon: prices, or else simple returns in per cent, or else values.</summary>
    /// <returns>Several lines, the same in every culture.</returns>
    public override string ToString()
    {
        var text = new StringBuilder(Heading());
        var cells = Table();
        for (var cell = 0; cell < cells.Count; cell += Quantiles.Count)
            text.Append('\n').Append(Line(cells, cell));
        foreach (var warning in Warnings)
            text.Append("\n! ").Append(warning);
        if (Lag > 0)
            text.Append('\n').Append(Returns is null ? "horizons" : "returns").Append(" count from ").Append(CountedFrom);
        return text.Append('\n').Append(Client.Skill.LineOf(Skill)).ToString();
    }

    /// <inheritdoc/>
    public bool Equals(Forecast? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats a price for people: two decimals, or four significant digits below 1.</summary>
    /// <param name="price">The price.</param>
    /// <returns>For example "202.94" and "0.00001234", the same in every culture.</returns>
    public static string FormatPrice(double price)
    {
        var size = Math.Abs(price);
        var decimals = size is > 0 and < 1 ? 3 - (int)Math.Floor(Math.Log10(size)) : 2;
        return price.ToString(string.Create(CultureInfo.InvariantCulture, $"F{decimals}"), CultureInfo.InvariantCulture);
    }

    /// <summary>Names the forecast in one line.</summary>
    internal string Title() =>
        FormattableString.Invariant($"{Model}@{Version}{MessageFormat.AsOf(AsOf)}, {MessageFormat.Count(Symbols.Count, "symbol")}");

    private string Number(int cell) => (Prices, Returns) switch
    {
        ({ } prices, _) when Math.Abs(prices.Span[cell]) < 1 => FormatPrice(prices.Span[cell]),
        ({ } prices, _) => prices.Span[cell].ToString("F4", CultureInfo.InvariantCulture),
        (null, not null) => SimpleReturnAt(cell).ToString("+0.00 %;-0.00 %", CultureInfo.InvariantCulture),
        _ => Values.Span[cell].ToString("F4", CultureInfo.InvariantCulture),
    };

    private string Heading()
    {
        var names = Quantiles.Select(q => string.Create(CultureInfo.InvariantCulture, $"q{q:0.###}").PadLeft(12));
        return string.Create(CultureInfo.InvariantCulture, $"{Model}@{Version} as of {AsOf:yyyy-MM-dd}")
            + $"\n{"symbol",-10}{"days",6}{"session",12}{string.Concat(names)}{(Ranks is null ? "" : $"{"score",12}{"rank",6}")}";
    }

    private string Line(IReadOnlyList<ForecastRow> cells, int first)
    {
        var (symbol, horizon, session) = (cells[first].Symbol, cells[first].Horizon, cells[first].Session);
        var numbers = Enumerable.Range(first, Quantiles.Count).Select(cell => Number(cell).PadLeft(12));
        return string.Create(CultureInfo.InvariantCulture, $"{symbol,-10}{horizon,6}{session,12:yyyy-MM-dd}")
            + string.Concat(numbers)
            + (Ranks is null ? "" : string.Create(CultureInfo.InvariantCulture, $"{cells[first].Score,12:F4}{cells[first].Rank,6}"));
    }

    private ForecastRow RowAt(int cell)
    {
        var (rest, q) = Math.DivRem(cell, Quantiles.Count);
        var (s, h) = Math.DivRem(rest, Horizons.Count);
        var session = TargetSessions.Count > 0 ? TargetSessions[h] : (DateOnly?)null;
        var index = (s * Horizons.Count) + h;
        return new(Symbols[s], Horizons[h], session, Quantiles[q], Values.Span[cell], PriceAt(cell), ScoreAt(index), RankAt(index));
    }

    private double PriceAt(int cell) => Prices is { } prices ? prices.Span[cell] : double.NaN;

    private double SimpleReturnAt(int cell) => Returns is { } returns ? Math.Exp(returns.Span[cell]) - 1 : double.NaN;

    private double ScoreAt(int index) => Scores is { } scores ? scores.Span[index] : double.NaN;

    private int RankAt(int index) => Ranks is { } ranks ? ranks.Span[index] : 0;

    private int IndexOf(string symbol, int horizon)
    {
        var s = Axis.IndexOf(Symbols, symbol, nameof(symbol));
        return (s * Horizons.Count) + Axis.IndexOf(Horizons, horizon, nameof(horizon));
    }

    private int IndexOf(string symbol, int horizon, double quantile) =>
        (IndexOf(symbol, horizon) * Quantiles.Count) + Axis.IndexOf(Quantiles, quantile, nameof(quantile));

    private object?[] Parts() =>
    [
        ValueEquality.Of(Symbols),
        AsOf,
        ValueEquality.Of(TargetSessions),
        Lag,
        BaseSession,
        ValueEquality.Of(Horizons),
        ValueEquality.Of(Quantiles),
        TargetKind,
        ValueEquality.Of(Values),
        ValueEquality.Of(Returns),
        ValueEquality.Of(Prices),
        ValueEquality.Of(AnchorPrice),
        Model,
        Version,
        WeightsHash,
        ValueEquality.Of(Warnings),
        ForecastId,
        ValueEquality.Of(Scores),
        ValueEquality.Of(Ranks),
        UniverseHash,
        ValueEquality.Of(Refusals),
        Skill,
    ];
}
