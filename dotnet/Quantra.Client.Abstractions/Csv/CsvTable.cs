using System.Text;

namespace Quantra.Client;

/// <summary>A CSV file: a header, then rows with as many cells. The column of symbols is always called symbol here.</summary>
internal sealed class CsvTable : IDisposable
{
    /// <summary>The column of symbols.</summary>
    public const string Symbol = "symbol";

    private const int MostShown = 20;
    private const int LongestShown = 60;

    // Names with no other meaning. Names such as code, name or isin may have one: errors suggest them, and none is assumed.
    private static readonly string[] SymbolNames = [Symbol, "ticker", "ticker_symbol", "stock_symbol"];

    private readonly CsvReader _reader;
    private readonly string _file;
    private readonly string _reason;
    private readonly string _advice;
    private readonly Dictionary<string, int> _places = [];
    private readonly CsvColumn[] _symbolColumns = [];
    private readonly int _width;

    private CsvTable(CsvReader reader, string path, string reason, string advice)
    {
        (_reader, _file, _reason, _advice) = (reader, Path.GetFileName(path), reason, advice);
        string[] names = [.. Header().Select(Normal)];
        _width = names.Length;
        foreach (var (name, place) in names.Select((name, place) => (name, place)))
        {
            if (!_places.TryAdd(name, place))
                throw Refusal($"more than one column {Short(name)}");
        }

        _symbolColumns = [.. SymbolNames.Where(_places.ContainsKey).Select(name => new CsvColumn(name, _places[name]))];
        Columns = [.. names.Except(_symbolColumns.Skip(1).Select(column => column.Name)).Select(Called)];
    }

    /// <summary>The header's names, in lower case, with underscores for spaces; the column of symbols once, as symbol.</summary>
    public IReadOnlyList<string> Columns { get; }

    /// <summary>The column of symbols; null if there is none.</summary>
    public CsvColumn? SymbolColumn => _symbolColumns.Length > 0 ? new(Symbol, _symbolColumns[0].Place) : null;

    /// <summary>Opens a file and reads its header.</summary>
    /// <param name="path">The file.</param>
    /// <param name="reason">The reason of every error about it.</param>
    /// <param name="advice">What every error about what is in it ends with.</param>
    /// <exception cref="QuantraException">It cannot be read, or a column appears twice.</exception>
    public static CsvTable Open(string path, string reason, string advice = "")
    {
        ArgumentException.ThrowIfNullOrEmpty(path);
        CsvReader? reader = null;
        try
        {
            reader = new CsvReader(path);
            var table = new CsvTable(reader, path, reason, advice);
            reader = null;
            return table;
        }
        catch (Exception error) when (error is IOException or UnauthorizedAccessException)
        {
            throw QuantraError.BadFile(reason, $"{path} cannot be read: {error.Message}").ToException(error);
        }
        finally
        {
            reader?.Dispose();
        }
    }

    /// <inheritdoc/>
    public void Dispose() => _reader.Dispose();

    /// <summary>Whether the file has a column.</summary>
    public bool Has(string column) => column == Symbol ? _symbolColumns.Length > 0 : _places.ContainsKey(column);

    /// <summary>A column that the file has.</summary>
    public CsvColumn Column(string name) => name == Symbol ? SymbolColumn!.Value : new(name, _places[name]);

    /// <summary>Refuses a file that lacks a column.</summary>
    public void Require(IEnumerable<string> columns)
    {
        var missing = columns.Where(name => !Has(name)).ToArray();
        if (missing.Length == 0)
            return;
        var advice = Columns.Count == 1 && Columns[0].AsSpan().IndexOfAny(';', '\t') >= 0 ? "; put commas between its columns" : "";
        throw Refusal($"no column {string.Join(", ", missing)}; it has {Shown()}{advice}");
    }

    /// <summary>The rows that are not empty, at least one; each until the next is asked for.</summary>
    /// <exception cref="QuantraException">The file cannot be read on, or a row is not like the header.</exception>
    public IEnumerable<CsvRow> Rows()
    {
        var row = new CsvRow(this, _reader);
        _reader.Rewind();
        _reader.Read();
        var any = false;
        while (Next())
        {
            if (_reader.IsEmpty)
                continue;
            any = true;
            if (_reader.Count != _width)
                throw Refusal($"row {_reader.Number} after the header has {_reader.Count} cells, but the header has {_width}");
            if (_symbolColumns.Length > 1)
                CheckSame(row);
            yield return row;
        }

        if (!any)
            throw Refusal("no rows");
    }

    /// <summary>The text columns besides those that are read: one of them may be the symbol.</summary>
    /// <param name="read">Names of columns whose meaning is known.</param>
    /// <returns>The texts of each column in which every cell has a text and none is a number.</returns>
    public IReadOnlyList<(string Name, List<string> Texts)> NamedTexts(IEnumerable<string> read)
    {
        List<(string Name, List<string> Texts)> left = [.. Columns.Except(read).Select(name => (name, new List<string>()))];
        foreach (var row in Rows())
        {
            left.RemoveAll(one => IsNoText(row.Text(Column(one.Name))));
            left.ForEach(one => one.Texts.Add(row.Text(Column(one.Name))));
        }

        return left;

        static bool IsNoText(string cell) => cell.Length == 0 || CsvNumber.TryRead(cell, out _);
    }

    /// <summary>Advice for a file without a column symbol, where one of these columns may hold it.</summary>
    public static string Renaming(IReadOnlyList<string> names) =>
        names.Count > 0
            ? $"if column {Listed.First([.. names.Select(name => $"'{name}'")])} holds it, rename it to {Symbol}"
            : $"give the table a column {Symbol}";

    /// <summary>The error for a problem with the file.</summary>
    public QuantraException Refusal(string problem) => QuantraError.BadFile(_reason, $"{_file}: {problem}{_advice}").ToException();

    private string Shown() =>
        Columns.Any(name => name.Any(one => one == '\uFFFD' || (char.IsControl(one) && one != '\t')))
            ? "no columns, as it is no text"
            : string.Join(", ", Columns.Take(MostShown).Select(Short)) + (Columns.Count > MostShown ? $" and {Columns.Count - MostShown} more" : "");

    private static string Short(string name) => name.Length > LongestShown ? name[..LongestShown] + "…" : name;

    private static string Normal(string name) => name.Trim().ToLowerInvariant().Replace(' ', '_');

    private string[] Header() =>
        _reader.Read() ? [.. Enumerable.Range(0, _reader.Count).Select(place => Encoding.UTF8.GetString(_reader.Cell(place)))] : [""];

    private string Called(string name) => _symbolColumns.Length > 0 && name == _symbolColumns[0].Name ? Symbol : name;

    private bool Next()
    {
        try
        {
            return _reader.Read();
        }
        catch (IOException error)
        {
            throw QuantraError.BadFile(_reason, $"{_file} cannot be read on: {error.Message}").ToException(error);
        }
    }

    /// <summary>Refuses a row in which the columns of symbols differ.</summary>
    private void CheckSame(CsvRow row)
    {
        var one = row.Text(_symbolColumns[0]);
        foreach (var other in _symbolColumns.Skip(1))
        {
            var two = row.Text(other);
            if (one != two)
            {
                throw Refusal(
                    $"row {row.Place} after the header: column {_symbolColumns[0].Name} says '{one}', column {other.Name} says '{two}'; "
                    + "keep the one that names the stock, and remove or rename the other");
            }
        }
    }
}
