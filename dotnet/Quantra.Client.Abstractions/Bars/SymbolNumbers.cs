using System.Text;

namespace Quantra.Client;

/// <summary>Numbers symbols in the order in which they first appear.</summary>
/// <remarks>
/// In a file the symbol is mostly that of the row before, or the one that came after it the last time: then the bytes are
/// compared, and no text is made of them.
/// </remarks>
internal sealed class SymbolNumbers
{
    private readonly List<string> _names = [];
    private readonly List<byte[]> _bytes = [];
    private readonly List<int> _next = [];
    private readonly Dictionary<string, int> _numbers = [];
    private int _last = -1;

    /// <summary>Every symbol, by its number.</summary>
    public IReadOnlyList<string> Names => _names;

    /// <summary>The number of the symbol of a row, which may be a new one.</summary>
    public int Of(CsvRow row, CsvColumn column)
    {
        var cell = row.Bytes(column);
        if (_last >= 0 && !cell.SequenceEqual(_bytes[_last]))
            _last = cell.SequenceEqual(_bytes[_next[_last]]) ? _next[_last] : _next[_last] = Of(row.Symbol());
        return _last >= 0 ? _last : _last = Of(row.Symbol());
    }

    /// <summary>The number of a symbol, which may be a new one.</summary>
    public int Of(string name)
    {
        if (!_numbers.TryGetValue(name, out var number))
        {
            number = _numbers[name] = _names.Count;
            _names.Add(name);
            _bytes.Add(Encoding.UTF8.GetBytes(name));
            _next.Add(number);
        }

        return number;
    }
}
