using System.Runtime.CompilerServices;

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
    private readonly UnusedObjects<Tape<TVector>> _tapes = new();

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
            using var trace = TraceBlock(tape, inputs, first);
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
        Decode(trace, Encode(trace), 0, _attention.FindEdges(inputs));
        return trace;
    }

    /// <summary>Some rows from the first on.</summary>
    private TapeTrace<TVector> TraceBlock(Tape<TVector> tape, NetworkInputs inputs, int first) =>
        new(tape, inputs, first, Math.Min(RowsAtOnce, inputs.Rows - first), _sizes);

    /// <summary>Encodes all rows of panels, block by block, so that the tape keeps only what the neighbours and the heads read.</summary>
    private EncodedRows EncodePanel(Tape<TVector> tape, NetworkInputs inputs)
    {
        var panel = new EncodedRows(tape.Add(inputs.Rows, _encoder.Width), tape.Add(inputs.Rows, _encoder.Width), tape.Add(inputs.Rows, _encoder.Width));
        for (var first = 0; first < inputs.Rows; first += RowsAtOnce)
        {
            using var trace = TraceBlock(tape, inputs, first);
            var block = Encode(trace);
            tape.Values(block.States).CopyTo(tape.Values(panel.States.Slice(first, trace.Windows)));
            tape.Values(block.Keys).CopyTo(tape.Values(panel.Keys.Slice(first, trace.Windows)));
            tape.Values(block.Values).CopyTo(tape.Values(panel.Values.Slice(first, trace.Windows)));
        }

        return panel;
    }

    /// <summary>Encodes each row from its own window.</summary>
    private EncodedRows Encode(TapeTrace<TVector> trace)
    {
        var (tape, rows, windows) = (trace.Tape, trace.Rows, trace.Windows);
        var dominant = _frequencies?.Record(trace);
        var states = _encoder.Record(tape, JoinPatches(trace, dominant), windows).States;
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
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private TapeMatrix JoinPatches(TapeTrace<TVector> trace, TapeMatrix? dominant)
    {
        var (tape, rows, windows, length, features, width) = (trace.Tape, trace.Rows, trace.Windows, _sizes.EncoderLength, _sizes.Observed, _sizes.RowWidth);
        var steps = (length + _patch - 1) / _patch;
        var patches = tape.Add(steps * windows, Kernels<TVector>.Padded(_patch * width));
        var places = new int[length];
        for (var session = 0; session < length; session++)
        {
            var place = (steps * _patch) - length + session;
            places[session] = (place / _patch * windows * patches.Width) + (place % _patch * width);
        }

        for (var window = 0; window < windows; window++)
        {
            var own = tape.Values(patches)[(window * patches.Width)..];
            for (var session = 0; session < length; session++)
                tape.Values(rows.Slice((session * windows) + window, 1))[..width].CopyTo(own[places[session]..]);
            for (var feature = 0; dominant is { } strongest && feature < features; feature++)
                Subtract(tape.Values(strongest.Slice((feature * windows) + window, 1)), trace.MaskOf(window)[feature..], features, own[feature..], places);
        }

        tape.Then(() =>
        {
            for (var row = 0; row < rows.Rows; row++)
            {
                var (session, window) = (row / windows, row % windows);
                var own = tape.Gradients(patches)[((window * patches.Width) + places[session])..];
                var gradient = tape.Gradients(rows.Slice(row, 1));
                for (var column = 0; column < width; column++)
                {
                    var isRest = dominant is not null && column < features;
                    if (isRest && !trace.MaskOf(window)[(session * features) + column])
                        continue;
                    gradient[column] += own[column];
                    if (isRest)
                        tape.Gradient(dominant!.Value.Slice((column * windows) + window, 1), session) -= own[column];
                }
            }
        });
        return patches;
    }

    /// <summary>Subtracts a term of each session from the cells of a feature; unknown cells become 0.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void Subtract(ReadOnlySpan<float> terms, ReadOnlySpan<bool> mask, int stride, Span<float> cells, int[] places)
    {
        for (var session = 0; session < places.Length; session++)
        {
            ref var cell = ref cells[places[session]];
            cell = mask[session * stride] ? cell - terms[session] : 0;
        }
    }
}
