namespace Quantra.Client.Managed;

/// <summary>Rows of panels on a tape, each from its own window.</summary>
/// <param name="States">[rows, width]</param>
/// <param name="Keys">[rows, width] what attention compares with.</param>
/// <param name="Values">[rows, width] what attention reads.</param>
internal readonly record struct EncodedRows(TapeMatrix States, TapeMatrix Keys, TapeMatrix Values);

/// <summary>An edge of a row to a neighbour in its panel.</summary>
/// <param name="Row">The neighbour's row.</param>
/// <param name="Weight">Weight of the edge.</param>
internal readonly record struct Edge(int Row, float Weight);

/// <summary>Attention of each row over its neighbours in a graph of stocks, whose values are differences from the row's own.</summary>
internal sealed class NeighbourAttention<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly int _width;
    private readonly int _heads;
    private readonly int _observed;
    private readonly Linear<TVector> _query;
    private readonly Linear<TVector> _key;
    private readonly FloatBuffer _ofState;
    private readonly FloatBuffer _ofObserved;
    private readonly float[] _slope;
    private readonly float[] _edges;

    public NeighbourAttention(NetworkWeights weights, NetworkSettings settings, InputSizes sizes)
    {
        (_width, _heads, _observed) = (settings.Hidden, settings.Heads, sizes.Observed);
        _query = Linear<TVector>.Read(weights, "attention.query", _width, _width);
        _key = Linear<TVector>.Read(weights, "attention.key", _width, _width);
        var value = weights.Take("attention.value.weight", _width, _width + _observed);
        _ofState = PackedWeights.Transposed(value, _width + _observed, 0, _width, 1, _width, _key.Width);
        _ofObserved = PackedWeights.Transposed(value, _width + _observed, _width, _observed, 1, _width, _key.Width);
        _slope = weights.Take("attention.slope", _heads);
        Neighbours = ReadNeighbours(weights, sizes.Nodes, settings.Neighbours);
        _edges = weights.Take("weights", sizes.Nodes, settings.Neighbours);
    }

    /// <summary>[U][k] nodes of each node's neighbours, -1 = none.</summary>
    public int[][] Neighbours { get; }

    private int Most => Neighbours[0].Length;

    /// <summary>Adds what other rows read of these.</summary>
    /// <param name="tape">The tape.</param>
    /// <param name="states">[rows, width]</param>
    /// <param name="last">[rows, width] the last session of each row, which begins with the observed features.</param>
    public EncodedRows Encode(Tape<TVector> tape, TapeMatrix states, TapeMatrix last)
    {
        var values = tape.Add(states.Rows, states.Width);
        tape.AddProduct(states, 0, _width, _ofState, values);
        tape.AddProduct(last, 0, _observed, _ofObserved, values);
        return new(states, _key.Record(tape, states), values);
    }

    /// <summary>Attends on a tape; 0 for a row without neighbours.</summary>
    /// <param name="tape">The tape.</param>
    /// <param name="panel">All rows of the panels.</param>
    /// <param name="first">The first of the rows that attend.</param>
    /// <param name="edges">[rows that attend]</param>
    public TapeMatrix Record(Tape<TVector> tape, EncodedRows panel, int first, Edge[][] edges)
    {
        var count = edges.Length;
        var (query, rows) = (_query.Record(tape, panel.States.Slice(first, count)), new int[Most * count]);
        var logits = tape.Add(count * _heads, Kernels<TVector>.Padded(Most));
        Array.Fill(rows, -1);
        for (var row = 0; row < count; row++)
        {
            for (var place = 0; place < edges[row].Length; place++)
            {
                rows[(place * count) + row] = edges[row][place].Row;
                for (var head = 0; head < _heads; head++)
                    tape.Value(logits.Slice((row * _heads) + head, 1), place) = _slope[head] * edges[row][place].Weight;
            }
        }

        var values = tape.Gather(panel.Values, rows, panel.Values.Slice(first, count));
        return tape.Attend(
            count, query, tape.Gather(panel.Keys, rows), 0, values, 0, (_heads, _width / _heads), Array.ConvertAll(edges, own => own.Length), isShared: false, logits).Result;
    }

    /// <summary>Finds the edges of each row to neighbours that are in its panel.</summary>
    public Edge[][] FindEdges(NetworkInputs inputs)
    {
        var (edges, rowOf) = (new Edge[inputs.Rows][], new int[Neighbours.Length]);
        for (var row = 0; row < inputs.Rows; row++)
        {
            if (row % inputs.Members == 0)
                FindRows(inputs, row, rowOf);
            edges[row] = FindEdges(inputs.Nodes[row], rowOf);
        }

        return edges;
    }

    private Edge[] FindEdges(int node, int[] rowOf)
    {
        var (edges, count) = (new Edge[Most], 0);
        for (var edge = 0; node >= 0 && edge < Most; edge++)
        {
            var neighbour = Neighbours[node][edge];
            if (neighbour >= 0 && rowOf[neighbour] >= 0)
                edges[count++] = new(rowOf[neighbour], _edges[(node * Most) + edge]);
        }

        return edges[..count];
    }

    /// <summary>Writes the row of each node in a panel; -1 = missing, or unknown at the last session, so that no row attends to it.</summary>
    private void FindRows(NetworkInputs inputs, int first, int[] rowOf)
    {
        Array.Fill(rowOf, -1);
        for (var row = first; row < first + inputs.Members; row++)
        {
            if (inputs.Nodes[row] >= 0 && inputs.MaskOf(row)[^_observed..].Contains(true))
                rowOf[inputs.Nodes[row]] = row;
        }
    }

    private static int[][] ReadNeighbours(NetworkWeights weights, int nodes, int count)
    {
        var sent = weights.TakeTensor("neighbours", [nodes, count], "I64").ToInt64();
        var neighbours = new int[nodes][];
        for (var node = 0; node < nodes; node++)
        {
            neighbours[node] = Array.ConvertAll(sent[(node * count)..((node + 1) * count)], one => one >= -1 && one < nodes
                ? (int)one
                : throw Invalid($"an edge leads to stock {one}, but there are {nodes} (-1 = none)"));
            if (neighbours[node].Contains(node))
                throw Invalid("an edge leads from a stock to itself; remove it, because a stock always reads itself");
        }

        return neighbours;
    }

    private static QuantraException Invalid(string problem) => ArtifactError.Of(ArtifactFiles.WeightsFile, $"neighbours: {problem}");
}
