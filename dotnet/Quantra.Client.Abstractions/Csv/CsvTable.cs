using System.Globalization;

namespace Quantra.Client;

/// <summary>A CSV file: a header, then rows with as many cells. The column of symbols is always called symbol here.</summary>
internal sealed class CsvTable
{
    /// <summary>The column of symbols.</summary>
    public const string Symbol = "symbol";

    // Names with no other meaning. Names such as code, name or isin may have one: errors suggest them, and none is assumed.
    private static readonly string[] SymbolNames = [Symbol, "ticker", "ticker_symbol", "stock_symbol"];

    private readonly string[] _lines;
    private readonly string _file;
    private readonly string _reason;
    private readonly Dictionary<string, int> _places;
    private readonly int _width;
    private readonly string[] _symbolColumns;

    private CsvTable(string[] lines, string path, string reason)
    {
        (_lines, _file, _reason) = (lines, Path.GetFileName(path), reason);
        string[] names = [.. CsvLine.Split(lines.FirstOrDefault("")).Select(Normal)];
        if (names.GroupBy(name => name).FirstOrDefault(group => group.Count() > 1) is { } twice)
            throw Refusal($"more than one column {twice.Key}");
        _width = names.Length;
        _places = names.Select((name, place) => (name, place)).ToDictionary(one => one.name, one => one.place);
        _symbolColumns = [.. SymbolNames.Where(_places.ContainsKey)];
        if (_symbolColumns.Length > 0)
            _places[Symbol] = _places[_symbolColumns[0]];
        Columns = [.. names.Except(_symbolColumns.Skip(1)).Select(name => name == _symbolColumns.FirstOrDefault() ? Symbol : name)];
    }

    /// <summary>The header's names, in lower case, with underscores for spaces; the column of symbols once, as symbol.</summary>
    public IReadOnlyList<string> Columns { get; }

    /// <summary>Opens a file and reads its header.</summary>
    /// <param name="path">The file.</param>
    /// <param name="reason">The reason of every error about it.</param>
    /// <exception cref="QuantraException">It cannot be read, or a column appears twice.</exception>
    public static CsvTable Open(string path, string reason)
    {
        ArgumentException.ThrowIfNullOrEmpty(path);
        try
        {
            return new CsvTable(File.ReadAllLines(path), path, reason);
        }
        catch (Exception error) when (error is IOException or UnauthorizedAccessException)
        {
            throw QuantraError.BadFile(reason, $"{path} cannot be read: {error.Message}").ToException(error);
        }
    }

    /// <summary>Whether the file has a column.</summary>
    public bool Has(string column) => _places.ContainsKey(column);

    /// <summary>Refuses a file that lacks a column.</summary>
    public void Require(IEnumerable<string> columns)
    {
        var missing = columns.Where(name => !Has(name)).ToArray();
        if (missing.Length > 0)
            throw Refusal($"no column {string.Join(", ", missing)}; it has {string.Join(", ", Columns)}");
    }

    /// <summary>The rows that are not empty, at least one.</summary>
    public IEnumerable<CsvRow> Rows()
    {
        if (_lines.Skip(1).All(line => line.Length == 0))
            throw Refusal("no rows");
        for (var number = 1; number < _lines.Length; number++)
        {
            if (_lines[number].Length == 0)
                continue;
            var cells = CsvLine.Split(_lines[number]);
            if (cells.Count != _width)
                throw Refusal($"row {number} after the header has {cells.Count} cells, but the header has {_width}");
            CheckSame(number, cells);
            yield return new CsvRow(this, number, cells);
        }
    }

    /// <summary>The text columns besides those that are read: one of them may be the symbol.</summary>
    /// <param name="read">Names of columns whose meaning is known.</param>
    /// <returns>The texts of each column in which every cell has a text and none is a number.</returns>
    public IEnumerable<(string Name, string[] Texts)> NamedTexts(IEnumerable<string> read)
    {
        CsvRow[] rows = [.. Rows()];
        return Columns.Except(read)
            .Select(name => (name, rows.Select(row => row.Text(name)).ToArray()))
            .Where(one => one.Item2.All(text => text.Length > 0 && !double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out _)));
    }

    /// <summary>Advice for a file without a column symbol, where one of these columns may hold it.</summary>
    public static string Renaming(IReadOnlyList<string> names) =>
        names.Count > 0
            ? $"if column {Listed.First([.. names.Select(name => $"'{name}'")])} holds it, rename it to {Symbol}"
            : $"give the table a column {Symbol}";

    /// <summary>The position of a column.</summary>
    public int PlaceOf(string column) => _places[column];

    /// <summary>The error for a problem with the file.</summary>
    public QuantraException Refusal(string problem) => QuantraError.BadFile(_reason, $"{_file}: {problem}").ToException();

    /// <summary>Refuses a row in which the columns of symbols differ.</summary>
    private void CheckSame(int number, List<string> cells)
    {
        foreach (var other in _symbolColumns.Skip(1))
        {
            var (one, two) = (cells[_places[Symbol]].Trim(), cells[_places[other]].Trim());
            if (one != two)
            {
                throw Refusal(
                    $"row {number} after the header: column {_symbolColumns[0]} says '{one}', column {other} says '{two}'; "
                    + "keep the one that names the stock, and remove or rename the other");
            }
        }
    }

    private static string Normal(string name) => name.Trim().ToLowerInvariant().Replace(' ', '_');
}
