namespace Quantra.Client;

/// <summary>A CSV file: a header line, then rows of as many cells.</summary>
internal sealed class CsvTable
{
    private readonly string[] _lines;
    private readonly string _file;
    private readonly string _reason;
    private readonly Dictionary<string, int> _places;

    private CsvTable(string[] lines, string path, string reason)
    {
        (_lines, _file, _reason) = (lines, Path.GetFileName(path), reason);
        Columns = [.. CsvLine.Split(lines.FirstOrDefault("")).Select(Normal)];
        if (Columns.GroupBy(name => name).FirstOrDefault(group => group.Count() > 1) is { } twice)
            throw Refusal($"more than one column {twice.Key}");
        _places = Columns.Select((name, place) => (name, place)).ToDictionary(one => one.name, one => one.place);
    }

    /// <summary>The header's names, in small letters, underscores for blanks.</summary>
    public IReadOnlyList<string> Columns { get; }

    /// <summary>Opens a file and reads its header.</summary>
    /// <param name="path">The file.</param>
    /// <param name="reason">The reason of every error about it.</param>
    /// <exception cref="QuantraException">It cannot be read, or a column stands twice.</exception>
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

    /// <summary>Whether there is such a column.</summary>
    public bool Has(string column) => _places.ContainsKey(column);

    /// <summary>Refuses a file that lacks a column.</summary>
    public void Require(IEnumerable<string> columns)
    {
        var missing = columns.Where(name => !Has(name)).ToArray();
        if (missing.Length > 0)
            throw Refusal($"no column {string.Join(", ", missing)}; it has {string.Join(", ", Columns)}");
    }

    /// <summary>The rows that are not empty, of which there is at least one.</summary>
    public IEnumerable<CsvRow> Rows()
    {
        if (_lines.Skip(1).All(line => line.Length == 0))
            throw Refusal("no rows");
        for (var number = 1; number < _lines.Length; number++)
        {
            if (_lines[number].Length == 0)
                continue;
            var cells = CsvLine.Split(_lines[number]);
            if (cells.Count != Columns.Count)
                throw Refusal($"row {number} after the header has {cells.Count} cells, but the header has {Columns.Count}");
            yield return new CsvRow(this, number, cells);
        }
    }

    /// <summary>Where a column stands.</summary>
    public int PlaceOf(string column) => _places[column];

    /// <summary>What is wrong with the file.</summary>
    public QuantraException Refusal(string problem) => QuantraError.BadFile(_reason, $"{_file}: {problem}").ToException();

    private static string Normal(string name) => name.Trim().ToLowerInvariant().Replace(' ', '_');
}
