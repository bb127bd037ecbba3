using System.Globalization;

namespace Quantra.Client;

/// <summary>Reads bars out of CSV text, by the rules of <see cref="BarPanel.ReadCsv"/>.</summary>
internal sealed class BarsCsv
{
    private static readonly string[] Required = ["open", "high", "low", "close", "volume"];
    private static readonly string[] Optional = ["adj_close", "split_ratio", "cash_dividend"];

    private readonly string _file;
    private readonly string[] _header;
    private readonly string[] _columns;
    private readonly Dictionary<string, SortedList<DateOnly, double[]>> _bars = [];
    private readonly List<string> _symbols = [];

    private BarsCsv(string path, string header)
    {
        _file = Path.GetFileName(path);
        _header = [.. CsvLine.Split(header).Select(Normal)];
        _columns = [.. Required, .. Optional.Where(name => _header.Contains(name))];
        if (_header.GroupBy(name => name).FirstOrDefault(group => group.Count() > 1) is { } twice)
            throw Refusal($"more than one column {twice.Key}");
        var missing = Required.Prepend("date").Except(_header).ToArray();
        if (missing.Length > 0)
            throw Refusal($"no column {string.Join(", ", missing)}; it has {string.Join(", ", _header)}");
    }

    /// <summary>Reads a whole table.</summary>
    /// <param name="reader">The text, a header line first.</param>
    /// <param name="path">Names the file in errors, and the symbol if there is no such column.</param>
    public static BarPanel Read(TextReader reader, string path)
    {
        var table = new BarsCsv(path, reader.ReadLine() ?? "");
        var row = 0;
        while (reader.ReadLine() is { } line)
        {
            row++;
            if (line.Length > 0)
                table.Add(line, row, Path.GetFileNameWithoutExtension(path).ToUpperInvariant());
        }

        return table.ToPanel();
    }

    private static string Normal(string name) =>
        name.Trim().ToLowerInvariant().Replace(' ', '_');

    private void Add(string line, int row, string nameOfFile)
    {
        var cells = CsvLine.Split(line);
        if (cells.Count != _header.Length)
            throw Refusal($"row {row} after the header has {cells.Count} cells, but the header has {_header.Length}");
        var symbol = _header.Contains("symbol") ? Cell(cells, "symbol") : nameOfFile;
        if (symbol.Length == 0)
            throw Refusal($"row {row} after the header: the symbol is empty");
        var day = Day(Cell(cells, "date"), row);
        var bars = BarsOf(symbol);
        if (bars.Count > 0 && day <= bars.Keys[^1])
            throw Disorder(symbol, day, bars.Keys[^1]);
        bars.Add(day, [.. _columns.Select(column => Number(Cell(cells, column), column, row))]);
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

    private string Cell(List<string> cells, string column) => cells[Array.IndexOf(_header, column)].Trim();

    private DateOnly Day(string text, int row)
    {
        var day = text.Length > 10 && text[10] is 'T' or ' ' ? text[..10] : text;
        return DateOnly.TryParseExact(day, ["yyyy-MM-dd", "yyyyMMdd"], CultureInfo.InvariantCulture, DateTimeStyles.None, out var date)
            ? date
            : throw Refusal($"row {row} after the header, column date: '{text}' is no date; write 2013-12-31 or 20131231");
    }

    private double Number(string text, string column, int row)
    {
        if (text.Length == 0)
            return double.NaN;
        return double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out var value)
            ? value
            : throw Refusal($"row {row} after the header, column {column}: '{text}' is no number");
    }

    private BarPanel ToPanel()
    {
        if (_symbols.Count == 0)
            throw Refusal("no rows");
        var sessions = _bars.Values.SelectMany(bars => bars.Keys).Distinct().Order().ToArray();
        return new BarPanel
        {
            Symbols = _symbols,
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

    /// <summary>A column on the panel's [S, T], NaN where a symbol has no row; empty if the file has no such column.</summary>
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

    private QuantraException Disorder(string symbol, DateOnly day, DateOnly before) =>
        Refusal(day == before
            ? string.Create(CultureInfo.InvariantCulture, $"{symbol} {day:yyyy-MM-dd} stands twice; give each day one row")
            : string.Create(
                CultureInfo.InvariantCulture,
                $"{symbol} {day:yyyy-MM-dd} stands after {before:yyyy-MM-dd}; sort each symbol's rows, oldest first"));

    private QuantraException Refusal(string problem) => QuantraError.BadBars($"{_file}: {problem}").ToException();
}
