using System.Globalization;

namespace Quantra.Client;

/// <summary>Reads bars from a CSV file, by the rules of <see cref="BarPanel.ReadCsv"/>.</summary>
internal sealed class BarsCsvReader
{
    /// <summary>Number of symbols times sessions that is always accepted, however few of them have a bar.</summary>
    private const long AlwaysTaken = 10_000_000;

    private const int MaxCellsPerRow = 100;

    /// <summary>Number of dates that is enough to tell whether bars are daily.</summary>
    private const int LeastDates = 5;

    /// <summary>Days between bars that are not daily. Even the longest holidays follow on days with bars.</summary>
    private const int LeastGapDays = 5;

    private readonly CsvTable _table;
    private readonly CsvColumn _date;
    private readonly CsvColumn? _symbol;
    private readonly string[] _fields;
    private readonly CsvColumn[] _columns;
    private readonly SymbolIndex _symbols = new();
    private readonly List<DateOnly> _lastDays = [];
    private readonly UtcDayResolver _days = new();
    private readonly BarRowBuffer _rows;

    private BarsCsvReader(CsvTable table)
    {
        _table = table;
        var columns = BarColumns.Of(table);
        (_date, _symbol) = (columns[BarColumns.Date], table.SymbolColumn);
        _fields = [.. columns.Keys.Where(field => field != BarColumns.Date)];
        _columns = [.. _fields.Select(field => columns[field])];
        _rows = new BarRowBuffer(_columns.Length);
    }

    public static BarPanel Read(string path, CancellationToken cancellationToken)
    {
        using var table = CsvTable.Open(path, QuantraReason.BarsInvalid, Advise(Path.GetFileName(path)));
        var bars = new BarsCsvReader(table);
        var fileName = Path.GetFileNameWithoutExtension(path).ToUpperInvariant();
        foreach (var row in table.Rows())
        {
            cancellationToken.ThrowIfCancellationRequested();
            bars.Add(row, fileName);
        }

        return bars.ToPanel();
    }

    private static string Advise(string file) =>
        $"""; if another program wrote the file, convert it with Python: `quantra check "{file}" --fix clean.csv`""";

    private void Add(CsvRow row, string fileName)
    {
        var symbol = _symbol is { } column ? _symbols.Of(row, column) : _symbols.Of(fileName);
        var day = _days.Day(row, _date);
        if (symbol == _lastDays.Count)
            _lastDays.Add(DateOnly.MinValue);
        else if (day <= _lastDays[symbol])
            throw CreateMissingColumnError() ?? OrderError(_symbols.Names[symbol], day, _lastDays[symbol]);
        _lastDays[symbol] = day;
        var (columns, position) = _rows.Add(symbol, day);
        for (var index = 0; index < _columns.Length; index++)
            columns[index][position] = row.Number(_columns[index]);
    }

    private BarPanel ToPanel()
    {
        var sessions = _rows.Days();
        CheckSize(sessions.Length);
        CheckDaily(sessions);
        var ahead = _days.CountDaysAhead(_table);
        return new BarPanel
        {
            Symbols = [.. _symbols.Names],
            Sessions = Array.ConvertAll(sessions, day => day.AddDays(ahead)),
            Open = Take("open", sessions),
            High = Take("high", sessions),
            Low = Take("low", sessions),
            Close = Take("close", sessions),
            Volume = Take("volume", sessions),
            AdjustedClose = Take("adj_close", sessions),
            SplitRatio = Take("split_ratio", sessions),
            CashDividend = Take("cash_dividend", sessions),
        };
    }

    /// <summary>Returns a field as [S, T], NaN where a symbol has no row; empty if the file has no such column.</summary>
    private double[] Take(string name, DateOnly[] sessions)
    {
        var index = Array.IndexOf(_fields, name);
        return index < 0 ? [] : _rows.Take(index, _symbols.Names.Count, sessions);
    }

    /// <summary>Rejects a file with few rows whose panel would be huge and almost empty.</summary>
    private void CheckSize(int sessions)
    {
        var cells = (long)_symbols.Names.Count * sessions;
        if (cells > AlwaysTaken && cells > (long)MaxCellsPerRow * _rows.Count)
        {
            throw _table.Refusal(
                $"{_rows.Count} rows of {_symbols.Names.Count} symbols on {sessions} dates, so fewer than one in {MaxCellsPerRow} symbol-dates has a bar; "
                + "put symbols with other dates into separate files");
        }
    }

    /// <summary>Rejects weekly and monthly bars, none of which are close to another.</summary>
    private void CheckDaily(DateOnly[] sessions)
    {
        if (sessions.Length < LeastDates)
            return;
        int[] gaps = [.. sessions.Zip(sessions.Skip(1), (one, next) => next.DayNumber - one.DayNumber).Order()];
        if (gaps[0] >= LeastGapDays)
        {
            throw _table.Refusal(
                $"its bars are {gaps[gaps.Length / 2]} days apart, the closest {gaps[0]}, but daily bars are required; export it with an interval of one day");
        }
    }

    /// <summary>
    /// Returns the error for rows of several symbols without a symbol column: a day appears twice, or a text column with few values tells the
    /// rows apart. Null if there is a symbol column or no sign of several symbols.
    /// </summary>
    private QuantraException? CreateMissingColumnError()
    {
        if (_symbol is not null)
            return null;
        DateOnly[] days = [.. _table.Rows().Select(row => row.Day(_date))];
        var twice = days.GroupBy(day => day).FirstOrDefault(group => group.Count() > 1);
        string[] likely =
        [
            .. _table.ReadNamedTexts([_date.Name, .. _columns.Select(column => column.Name)])
                .Where(column => IsLikelySymbol(column.Texts, days, sorted: twice is null))
                .Select(column => column.Name),
        ];
        var renaming = CsvTable.Renaming(likely);
        if (twice is null)
            return likely.Length == 0 ? null : _table.Refusal($"no symbol column, and its dates are not in order; {renaming}");
        var advice = likely.Length == 0 ? "give each day one row, or " : "";
        return _table.Refusal(string.Create(
            CultureInfo.InvariantCulture, $"no symbol column, and {twice.Key:yyyy-MM-dd} appears twice; {advice}{renaming}"));
    }

    /// <summary>Whether these texts, taken as symbols, would give each symbol several days in order.</summary>
    private static bool IsLikelySymbol(List<string> texts, DateOnly[] days, bool sorted)
    {
        var groups = texts.Zip(days).GroupBy(one => one.First, one => one.Second).Select(group => group.ToArray()).ToArray();
        return groups.Length <= texts.Count / 2
            && groups.All(own => sorted ? own.Zip(own.Skip(1)).All(pair => pair.First < pair.Second) : own.Distinct().Count() == own.Length);
    }

    private QuantraException OrderError(string symbol, DateOnly day, DateOnly before) =>
        _table.Refusal(day == before
            ? string.Create(CultureInfo.InvariantCulture, $"{symbol} {day:yyyy-MM-dd} appears twice; give each day one row")
            : string.Create(
                CultureInfo.InvariantCulture,
                $"{symbol} {day:yyyy-MM-dd} comes after {before:yyyy-MM-dd}; sort each symbol's rows, oldest first"));
}
