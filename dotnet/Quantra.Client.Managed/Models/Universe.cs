namespace Quantra.Client.Managed;

/// <summary>The stocks that a graph network knows, with their neighbours.</summary>
internal sealed class Universe
{
    private readonly string[] _symbols;
    private readonly int[][] _neighbours;
    private readonly Dictionary<string, int> _nodes = new(StringComparer.Ordinal);

    private Universe(string[] symbols, int[][] neighbours)
    {
        (_symbols, _neighbours) = (symbols, neighbours);
        for (var node = 0; node < symbols.Length; node++)
            _nodes.Add(symbols[node], node);
    }

    /// <summary>Reads and checks the symbols of a manifest.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a graph network has none or one twice, or another network has some.</exception>
    public static string[] Read(JsonRecord manifest, string kind)
    {
        var symbols = manifest.Texts("universe");
        if (symbols.Length > 0 != (kind == "graph"))
            throw manifest.Refusal("universe", $"has {symbols.Length} symbols, but network '{kind}' needs {(kind == "graph" ? "at least one" : "none")}");
        string[] twice = [.. symbols.GroupBy(symbol => symbol, StringComparer.Ordinal).Where(one => one.Count() > 1).Select(one => one.Key)];
        return twice.Length == 0 ? symbols : throw manifest.Refusal("universe", $"has {PredictionError.Listed(twice)} twice");
    }

    /// <summary>The universe of a network; null if it reads each row independently.</summary>
    public static Universe? Of(INetwork network, string[] symbols) => network is IPanelNetwork panel ? new(symbols, panel.Neighbours) : null;

    /// <summary>Rows that one forecast depends on: a stock and its neighbours.</summary>
    public int Members => 1 + _neighbours[0].Length;

    /// <summary>The node of each symbol; -1 = unknown.</summary>
    public int[] FindNodes(IReadOnlyList<string> symbols) => [.. symbols.Select(symbol => _nodes.GetValueOrDefault(symbol, -1))];

    /// <summary>Warnings about symbols with missing neighbours and about unknown symbols, among those of a panel that have a forecast.</summary>
    public IEnumerable<string> Warnings(IReadOnlyList<string> symbols)
    {
        var (nodes, isPresent, isAbsent) = (FindNodes(symbols), new bool[_symbols.Length], new bool[_symbols.Length]);
        foreach (var node in nodes)
        {
            if (node >= 0)
                isPresent[node] = true;
        }

        List<string> without = [], strangers = [];
        for (var row = 0; row < nodes.Length; row++)
        {
            var isComplete = true;
            foreach (var neighbour in nodes[row] < 0 ? [] : _neighbours[nodes[row]])
            {
                if (neighbour < 0 || isPresent[neighbour])
                    continue;
                isAbsent[neighbour] = true;
                isComplete = false;
            }

            if (nodes[row] < 0)
                strangers.Add(symbols[row]);
            else if (!isComplete)
                without.Add(symbols[row]);
        }

        if (without.Count > 0)
        {
            yield return $"{PredictionError.Listed(without)}: forecast without the neighbours {PredictionError.Listed([.. _symbols.Where((_, node) => isAbsent[node])])}, which are missing in the panel "
                + "or have no forecast themselves; send their bars too";
        }

        if (strangers.Count > 0)
            yield return $"{PredictionError.Listed(strangers)}: forecast without neighbours, because training had no data of such stocks";
    }
}
