using System.Collections.Concurrent;

namespace Quantra.Client.Managed;

/// <summary>The kind "graph": a recurrent encoder of each stock, attention over its neighbours, then a context and a head for each horizon.</summary>
/// <remarks>Forecasts are computed on a tape, too, so that there is one computation for both.</remarks>
internal sealed class GraphNetwork<TVector> : IPanelNetwork
    where TVector : struct, IVector<TVector>
{
    /// <summary>Rows of one block; more would not stay in the processor's cache.</summary>
    private const int RowsAtOnce = 16;

    private readonly InputSizes _sizes;
    private readonly int _horizons;
    private readonly int _patch;
    private readonly FrequencyAdaptiveNorm<TVector>? _frequencies;
    private readonly RecurrentLayer<TVector> _encoder;
    private readonly NeighbourAttention<TVector> _attention;
    private readonly Linear<TVector> _gate;
    private readonly LayerNorm<TVector> _norm;
    private readonly HorizonContext<TVector> _context;
    private readonly QuantileHead<TVector> _head;
    private readonly SequenceLinear<TVector> _level;
    private readonly Linear<TVector> _levelAround;
    private readonly Linear<TVector> _score;
    private readonly Linear<TVector> _scoreLevel;
    private readonly ConcurrentBag<Tape<TVector>> _tapes = [];

    public GraphNetwork(NetworkWeights weights, NetworkSettings settings, InputSizes sizes, Target target, double[] levels)
    {
        var (width, horizons) = (settings.Hidden, target.Horizons.Length);
        (_sizes, _horizons, _patch) = (sizes, horizons, settings.Patch);
        _frequencies = settings.Frequencies > 0 ? new(weights, sizes, settings.Frequencies, width) : null;
        _encoder = new(weights, "gru", 0, 3, _patch * sizes.RowWidth, width);
        _attention = new(weights, settings, sizes);
        _gate = Linear<TVector>.Read(weights, "gate", width, width, groups: 2);
        _norm = LayerNorm<TVector>.Read(weights, "norm", width);
        _context = new(weights, width, sizes, target);
        _head = new(weights, width, horizons, levels);
        _level = new(weights.Take("level.weight", horizons, sizes.EncoderLength * sizes.Observed), horizons, sizes.EncoderLength, sizes.Observed);
        _levelAround = Linear<TVector>.Read(weights, "level_around", width, horizons, bias: false);
        _score = Linear<TVector>.Read(weights, "score", width, 1);
        _scoreLevel = Linear<TVector>.Read(weights, "score_level", horizons, horizons);
    }

    /// <inheritdoc/>
    public int[][] Neighbours => _attention.Neighbours;

    /// <inheritdoc/>
    public void Run(NetworkInputs inputs, Span<double> units) => Rank(inputs, units, []);

    /// <inheritdoc/>
    public void Rank(NetworkInputs inputs, Span<double> units, Span<double> scores)
    {
        var tape = Tape<TVector>.Take(_tapes);
        var (panel, edges) = (EncodePanel(tape, inputs), _attention.FindEdges(inputs));
        for (var first = 0; first < inputs.Rows; first += RowsAtOnce)
        {
            using var trace = new TapeTrace<TVector>(tape, Block(inputs, first), _sizes);
            var (contexts, level) = Decode(trace, panel, first, edges);
            for (var cell = 0; cell < trace.Units.Length; cell++)
                units[(first * _horizons * _head.Levels) + cell] = (float)trace.Units[cell];
            if (!scores.IsEmpty)
                WriteScores(tape, contexts, level, scores.Slice(first * _horizons, trace.Windows * _horizons));
        }

        _tapes.Add(tape);
    }

    /// <inheritdoc/>
    public INetworkTrace Trace(NetworkInputs inputs)
    {
        var trace = new TapeTrace<TVector>(_tapes, inputs, _sizes);
        Decode(trace, Encode(trace, inputs), 0, _attention.FindEdges(inputs));
        return trace;
    }

    /// <summary>Some rows from the first on.</summary>
    private NetworkInputs Block(NetworkInputs inputs, int first) =>
        InputRows.Slice(inputs, first, Math.Min(RowsAtOnce, inputs.Rows - first), (_sizes.EncoderLength + _sizes.FutureLength) * _sizes.Known);

    /// <summary>Encodes all rows of panels, block by block, so that the tape keeps only what the neighbours and the heads read.</summary>
    private EncodedRows EncodePanel(Tape<TVector> tape, NetworkInputs inputs)
    {
        var panel = new EncodedRows(tape.Add(inputs.Rows, _encoder.Width), tape.Add(inputs.Rows, _encoder.Width), tape.Add(inputs.Rows, _encoder.Width));
        for (var first = 0; first < inputs.Rows; first += RowsAtOnce)
        {
            var rows = Block(inputs, first);
            using var trace = new TapeTrace<TVector>(tape, rows, _sizes);
            var block = Encode(trace, rows);
            tape.Values(block.States).CopyTo(tape.Values(panel.States.Slice(first, trace.Windows)));
            tape.Values(block.Keys).CopyTo(tape.Values(panel.Keys.Slice(first, trace.Windows)));
            tape.Values(block.Values).CopyTo(tape.Values(panel.Values.Slice(first, trace.Windows)));
        }

        return panel;
    }

    /// <summary>Encodes each row from its own window.</summary>
    private EncodedRows Encode(TapeTrace<TVector> trace, NetworkInputs inputs)
    {
        var (tape, rows, windows) = (trace.Tape, trace.Rows, trace.Windows);
        var dominant = _frequencies?.Record(tape, rows, inputs);
        var states = _encoder.Record(tape, JoinPatches(tape, rows, dominant, inputs), windows).States;
        var state = states.Slice(states.Rows - windows, windows);
        if (dominant is { } strongest)
            state = tape.Sum(state, _frequencies!.RecordMap(tape, strongest));
        return _attention.Encode(tape, state, rows.Slice(rows.Rows - windows, windows));
    }

    /// <summary>Computes the units of a block of rows.</summary>
    /// <param name="trace">The windows of the block.</param>
    /// <param name="panel">All rows of the panels.</param>
    /// <param name="first">The first row of the block.</param>
    /// <param name="edges">The edges of all rows.</param>
    private (TapeMatrix[] Contexts, TapeMatrix Level) Decode(TapeTrace<TVector> trace, EncodedRows panel, int first, Edge[][] edges)
    {
        var (tape, state) = (trace.Tape, panel.States.Slice(first, trace.Windows));
        var attended = _attention.Record(tape, panel, first, edges[first..(first + trace.Windows)]);
        var contexts = _context.Record(trace, _norm.Record(tape, tape.AddGated(_gate.Record(tape, attended), state)));
        var level = tape.Sum(_level.Record(tape, trace.Rows), _levelAround.Record(tape, attended));
        trace.End(_head, contexts, level);
        return (contexts, level);
    }

    private void WriteScores(Tape<TVector> tape, TapeMatrix[] contexts, TapeMatrix level, Span<double> scores)
    {
        var (ofLevel, own) = (_scoreLevel.Record(tape, level), Array.ConvertAll(contexts, context => _score.Record(tape, context)));
        for (var cell = 0; cell < scores.Length; cell++)
        {
            var (row, horizon) = (cell / own.Length, cell % own.Length);
            scores[cell] = tape.Value(own[horizon].Slice(row, 1)) + tape.Value(ofLevel.Slice(row, 1), horizon);
        }
    }

    /// <summary>Joins rows of sessions to patches, oldest first, without what the normalisation takes out; zeros come before the window's first.</summary>
    private TapeMatrix JoinPatches(Tape<TVector> tape, TapeMatrix rows, TapeMatrix? dominant, NetworkInputs inputs)
    {
        var (windows, length, features, width) = (inputs.Rows, _sizes.EncoderLength, _sizes.Observed, _sizes.RowWidth);
        var steps = (length + _patch - 1) / _patch;
        var missing = (steps * _patch) - length;
        var patches = tape.Add(steps * windows, Kernels<TVector>.Padded(_patch * width));
        for (var row = 0; row < rows.Rows; row++)
        {
            tape.Values(rows.Slice(row, 1))[..width].CopyTo(Place(tape.Values(patches), row));
            for (var feature = 0; dominant is not null && feature < features; feature++)
            {
                ref var cell = ref Place(tape.Values(patches), row)[feature];
                cell = IsKnown(row, feature) ? cell - tape.Value(Dominant(row, feature), row / windows) : 0;
            }
        }

        tape.Then(() =>
        {
            for (var row = 0; row < rows.Rows; row++)
            {
                var own = Place(tape.Gradients(patches), row);
                var gradient = tape.Gradients(rows.Slice(row, 1));
                for (var column = 0; column < width; column++)
                {
                    var isRest = dominant is not null && column < features;
                    if (isRest && !IsKnown(row, column))
                        continue;
                    gradient[column] += own[column];
                    if (isRest)
                        tape.Gradient(Dominant(row, column), row / windows) -= own[column];
                }
            }
        });
        return patches;

        Span<float> Place(Span<float> values, int row)
        {
            var session = missing + (row / windows);
            return values.Slice((((session / _patch * windows) + (row % windows)) * patches.Width) + (session % _patch * width), width);
        }

        TapeMatrix Dominant(int row, int feature) => dominant!.Value.Slice((feature * windows) + (row % windows), 1);

        bool IsKnown(int row, int feature) => inputs.MaskOf(row % windows)[(row / windows * features) + feature];
    }
}
