using System.Text;

namespace Quantra.Client;

/// <summary>A CSV file with a header and rows of the same width. The symbol column is always called symbol here.</summary>
internal sealed class CsvTable : IDisposable
{
    public const string Symbol = "symbol";

    private const int MostShown = 20;
    private const int LongestShown = 60;

    // Unambiguous names. Others, for example code, name or isin, are only suggested in messages.
    private static readonly string[] SymbolNames = [Symbol, "ticker", "ticker_symbol", "stock_symbol"];

    private readonly CsvReader _reader;
    private readonly string _file;
    private readonly string _reason;
    private readonly string _advice;
    private readonly Dictionary<string, int> _indexes = [];
    private readonly CsvColumn[] _symbolColumns = [];
    private readonly int _width;

    private CsvTable(CsvReader reader, string path, string reason, string advice)
    {
        (_reader, _file, _reason, _advice) = (reader, Path.GetFileName(path), reason, advice);
        string[] names = [.. ReadHeader().Select(Normalise)];
        _width = names.Length;
        foreach (var (name, index) in names.Select((name, index) => (name, index)))
        {
            if (!_indexes.TryAdd(name, index))
                throw Refusal($"more than one column {Shorten(name)}");
        }

        _symbolColumns = [.. SymbolNames.Where(_indexes.ContainsKey).Select(name => new CsvColumn(name, _indexes[name]))];
        Columns = [.. names.Except(_symbolColumns.Skip(1).Select(column => column.Name)).Select(NormaliseName)];
    }

    /// <summary>The column names in lower case, with underscores for spaces. A symbol column appears once, as symbol.</summary>
    public IReadOnlyList<string> Columns { get; }

    /// <summary>The symbol column; null if there is none.</summary>
    public CsvColumn? SymbolColumn => _symbolColumns.Length > 0 ? new(Symbol, _symbolColumns[0].Index) : null;

    /// <summary>Opens a file and reads its header.</summary>
    /// <param name="path">The file.</param>
    /// <param name="reason">Reason of all errors.</param>
    /// <param name="advice">Text at the end of errors about the content.</param>
    /// <exception cref="QuantraException">The file cannot be read, or a column appears twice.</exception>
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

    public bool Has(string column) => column == Symbol ? _symbolColumns.Length > 0 : _indexes.ContainsKey(column);

    public CsvColumn Column(string name) => name == Symbol ? SymbolColumn!.Value : new(name, _indexes[name]);

    /// <summary>Throws if a column is missing.</summary>
    public void Require(IEnumerable<string> columns)
    {
        var missing = columns.Where(name => !Has(name)).ToArray();
        if (missing.Length == 0)
            return;
        var advice = Columns.Count == 1 && Columns[0].AsSpan().IndexOfAny(';', '\t') >= 0 ? "; separate its columns by commas" : "";
        throw Refusal($"missing column {string.Join(", ", missing)}; it has {DescribeColumns()}{advice}");
    }

    /// <summary>Yields the rows that are not empty, at least one. A row is valid until the next one.</summary>
    /// <exception cref="QuantraException">The file cannot be read, or a row does not fit the header.</exception>
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

    /// <summary>Finds text columns without a known meaning, one of which may be the symbol.</summary>
    /// <param name="read">Columns with a known meaning.</param>
    /// <returns>Texts of the columns in which every cell has a text that is not a number.</returns>
    public IReadOnlyList<(string Name, List<string> Texts)> ReadNamedTexts(IEnumerable<string> read)
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

    /// <summary>Advice for a file without a symbol column, given columns that may hold it.</summary>
    public static string Renaming(IReadOnlyList<string> names) =>
        names.Count > 0
            ? $"if column {MessageFormat.First([.. names.Select(name => $"'{name}'")])} holds it, rename it to {Symbol}"
            : $"add a column {Symbol}";

    /// <summary>Creates the exception for an invalid file.</summary>
    public QuantraException Refusal(string problem) => QuantraError.BadFile(_reason, $"{_file}: {problem}{_advice}").ToException();

    private string DescribeColumns() =>
        Columns.Any(name => name.Any(one => one == '\uFFFD' || (char.IsControl(one) && one != '\t')))
            ? "no columns, because it is not text"
            : string.Join(", ", Columns.Take(MostShown).Select(Shorten)) + (Columns.Count > MostShown ? $" and {Columns.Count - MostShown} more" : "");

    private static string Shorten(string name) => name.Length > LongestShown ? name[..LongestShown] + "…" : name;

    private static string Normalise(string name) => name.Trim().ToLowerInvariant().Replace(' ', '_');

    private string[] ReadHeader() =>
        _reader.Read() ? [.. Enumerable.Range(0, _reader.Count).Select(index => Encoding.UTF8.GetString(_reader.Cell(index)))] : [""];

    private string NormaliseName(string name) => _symbolColumns.Length > 0 && name == _symbolColumns[0].Name ? Symbol : name;

    private bool Next()
    {
        try
        {
            return _reader.Read();
        }
        catch (IOException error)
        {
            throw QuantraError.BadFile(_reason, $"{_file} cannot be read to its end: {error.Message}").ToException(error);
        }
    }

    /// <summary>Throws if the symbol columns of a row differ.</summary>
    private void CheckSame(CsvRow row)
    {
        var one = row.Text(_symbolColumns[0]);
        foreach (var other in _symbolColumns.Skip(1))
        {
            var two = row.Text(other);
            if (one != two)
            {
                throw Refusal(
                    $"row {row.RowNumber} after the header: column {_symbolColumns[0].Name} says '{one}', column {other.Name} says '{two}'; "
                    + "keep the one with the symbol, and remove or rename the other");
            }
        }
    }
}
