using System.Text;

namespace Quantra.Client;

/// <summary>Numbers symbols in order of their first appearance.</summary>
/// <remarks>
/// The symbol of a row is usually that of the previous row, or the one that followed it last time. Comparing bytes in these cases avoids
/// creating strings.
/// </remarks>
internal sealed class SymbolIndex
{
    private readonly List<string> _names = [];
    private readonly List<byte[]> _bytes = [];
    private readonly List<int> _next = [];
    private readonly Dictionary<string, int> _numbers = [];
    private int _last = -1;

    /// <summary>Symbols by number.</summary>
    public IReadOnlyList<string> Names => _names;

    /// <summary>Returns the number of a row's symbol.</summary>
    public int Of(CsvRow row, CsvColumn column)
    {
        var cell = row.Bytes(column);
        if (_last >= 0 && !cell.SequenceEqual(_bytes[_last]))
            _last = cell.SequenceEqual(_bytes[_next[_last]]) ? _next[_last] : _next[_last] = Of(row.Symbol());
        return _last >= 0 ? _last : _last = Of(row.Symbol());
    }

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
