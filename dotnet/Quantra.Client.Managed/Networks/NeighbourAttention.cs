namespace Quantra.Client.Managed;

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

    /// <summary>Attends on a tape; 0 for a row without neighbours.</summary>
    /// <param name="tape">The tape.</param>
    /// <param name="state">[rows, width]</param>
    /// <param name="last">[rows, width] the last session of each row, which begins with the observed features.</param>
    /// <param name="inputs">The rows, panel by panel.</param>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix state, TapeMatrix last, NetworkInputs inputs)
    {
        var own = tape.Add(state.Rows, state.Width);
        tape.AddProduct(state, 0, _width, _ofState, own);
        tape.AddProduct(last, 0, _observed, _ofObserved, own);
        var (query, key) = (_query.Record(tape, state), _key.Record(tape, state));
        var logits = tape.Add(state.Rows * _heads, Kernels<TVector>.Padded(Most));
        var (rows, counts) = FindNeighbours(inputs, (row, slot, edge) =>
        {
            for (var head = 0; head < _heads; head++)
                tape.Value(logits.Slice((row * _heads) + head, 1), slot) = _slope[head] * edge;
        });
        return tape.Attend(
            state.Rows, query, tape.Gather(key, rows), 0, tape.Gather(own, rows, isDifference: true), 0, (_heads, _width / _heads), counts, isShared: false, logits).Result;
    }

    /// <summary>Finds the rows [k, N] of each row's neighbours, those in the panel first, then -1; and their number [N].</summary>
    /// <param name="inputs">The rows, panel by panel.</param>
    /// <param name="write">Receives row, place and weight of each edge.</param>
    private (int[] Rows, int[] Counts) FindNeighbours(NetworkInputs inputs, Action<int, int, float> write)
    {
        var (members, rows, counts, rowOf) = (inputs.Members, new int[Most * inputs.Rows], new int[inputs.Rows], new int[Neighbours.Length]);
        Array.Fill(rows, -1);
        for (var row = 0; row < inputs.Rows; row++)
        {
            if (row % members == 0)
                FindRows(inputs, row, rowOf);
            for (var edge = 0; inputs.Nodes[row] >= 0 && edge < Most; edge++)
            {
                var neighbour = Neighbours[inputs.Nodes[row]][edge];
                if (neighbour < 0 || rowOf[neighbour] < 0)
                    continue;
                write(row, counts[row], _edges[(inputs.Nodes[row] * Most) + edge]);
                rows[(counts[row]++ * inputs.Rows) + row] = rowOf[neighbour];
            }
        }

        return (rows, counts);
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
