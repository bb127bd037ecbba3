using System.Globalization;

namespace Quantra.Client;

/// <summary>Reads bars from a CSV file, by the rules of <see cref="BarPanel.ReadCsv"/>.</summary>
internal sealed class BarsCsv
{
    private static readonly string[] Required = ["open", "high", "low", "close", "volume"];
    private static readonly string[] Optional = ["adj_close", "split_ratio", "cash_dividend"];

    private readonly CsvTable _table;
    private readonly string[] _columns;
    private readonly Dictionary<string, SortedList<DateOnly, double[]>> _bars = [];
    private readonly List<string> _symbols = [];

    private BarsCsv(CsvTable table)
    {
        _table = table;
        table.Require(Required.Prepend("date"));
        _columns = [.. Required, .. Optional.Where(table.Has)];
    }

    /// <summary>Reads a whole file.</summary>
    /// <param name="path">The file; its name is the symbol if no column is.</param>
    /// <param name="cancellationToken">Stops the reading between two rows.</param>
    public static BarPanel Read(string path, CancellationToken cancellationToken)
    {
        var table = CsvTable.Open(path, QuantraReason.BarsInvalid);
        var bars = new BarsCsv(table);
        foreach (var row in table.Rows())
        {
            cancellationToken.ThrowIfCancellationRequested();
            bars.Add(row, Path.GetFileNameWithoutExtension(path).ToUpperInvariant());
        }

        return bars.ToPanel();
    }

    private void Add(CsvRow row, string nameOfFile)
    {
        var symbol = _table.Has(CsvTable.Symbol) ? row.Symbol() : nameOfFile;
        var day = row.Day("date");
        var bars = BarsOf(symbol);
        if (bars.Count > 0 && day <= bars.Keys[^1])
            throw Several() ?? Disorder(symbol, day, bars.Keys[^1]);
        bars.Add(day, [.. _columns.Select(row.Number)]);
    }

    private SortedList<DateOnly, double[]> BarsOf(string symbol)
    {
        if (!_bars.TryGetValue(symbol, out var bars))
        {
            _bars[symbol] = bars = [];
            _symbols.Add(symbol);
        }

        return bars;
    }

    private BarPanel ToPanel()
    {
        var sessions = _bars.Values.SelectMany(bars => bars.Keys).Distinct().Order().ToArray();
        return new BarPanel
        {
            Symbols = [.. _symbols],
            Sessions = sessions,
            Open = Spread("open", sessions),
            High = Spread("high", sessions),
            Low = Spread("low", sessions),
            Close = Spread("close", sessions),
            Volume = Spread("volume", sessions),
            AdjustedClose = Spread("adj_close", sessions),
            SplitRatio = Spread("split_ratio", sessions),
            CashDividend = Spread("cash_dividend", sessions),
        };
    }

    /// <summary>A column as [S, T], NaN where a symbol has no row; empty if the file has no such column.</summary>
    private double[] Spread(string column, DateOnly[] sessions)
    {
        var index = Array.IndexOf(_columns, column);
        if (index < 0)
            return [];
        var values = new double[_symbols.Count * sessions.Length];
        Array.Fill(values, double.NaN);
        for (var row = 0; row < _symbols.Count; row++)
        {
            foreach (var (day, bar) in _bars[_symbols[row]])
                values[(row * sessions.Length) + Array.BinarySearch(sessions, day)] = bar[index];
        }

        return values;
    }

    /// <summary>
    /// The error for rows of several symbols that no column names: a day appears twice, or a text column with few values
    /// tells the rows apart. Null if a column does name them, or nothing gives them away.
    /// </summary>
    private QuantraException? Several()
    {
        if (_table.Has(CsvTable.Symbol))
            return null;
        DateOnly[] days = [.. _table.Rows().Select(row => row.Day("date"))];
        var twice = days.GroupBy(day => day).FirstOrDefault(group => group.Count() > 1);
        string[] likely =
        [
            .. _table.NamedTexts(["date", .. Required, .. Optional])
                .Where(column => IsLikelySymbol(column.Texts, days, sorted: twice is null))
                .Select(column => column.Name),
        ];
        var renaming = CsvTable.Renaming(likely);
        if (twice is null)
            return likely.Length == 0 ? null : _table.Refusal($"no column symbol, and its dates are not in order; {renaming}");
        var advice = likely.Length == 0 ? "give each day one row, or " : "";
        return _table.Refusal(string.Create(
            CultureInfo.InvariantCulture, $"no column symbol, and {twice.Key:yyyy-MM-dd} appears twice; {advice}{renaming}"));
    }

    /// <summary>Whether these texts, read as symbols, would give each symbol several days in order.</summary>
    private static bool IsLikelySymbol(string[] texts, DateOnly[] days, bool sorted)
    {
        var groups = texts.Zip(days).GroupBy(one => one.First, one => one.Second).Select(group => group.ToArray()).ToArray();
        return groups.Length <= texts.Length / 2
            && groups.All(own => sorted ? own.Zip(own.Skip(1)).All(pair => pair.First < pair.Second) : own.Distinct().Count() == own.Length);
    }

    private QuantraException Disorder(string symbol, DateOnly day, DateOnly before) =>
        _table.Refusal(day == before
            ? string.Create(CultureInfo.InvariantCulture, $"{symbol} {day:yyyy-MM-dd} appears twice; give each day one row")
            : string.Create(
                CultureInfo.InvariantCulture,
                $"{symbol} {day:yyyy-MM-dd} comes after {before:yyyy-MM-dd}; sort each symbol's rows, oldest first"));
}
