using System.Collections.Concurrent;

namespace Quantra.Client.Managed;

/// <summary>The kind "graph": a recurrent encoder of each stock, attention over its neighbours, then a context and a head for each horizon.</summary>
/// <remarks>Forecasts are computed on a tape, too, so that there is one computation for both.</remarks>
internal sealed class GraphNetwork<TVector> : IPanelNetwork
    where TVector : struct, IVector<TVector>
{
    private readonly InputSizes _sizes;
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
        (_sizes, _patch) = (sizes, settings.Patch);
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
        var (trace, contexts, level) = Record(inputs);
        for (var cell = 0; cell < units.Length; cell++)
            units[cell] = (float)trace.Units[cell];
        if (!scores.IsEmpty)
        {
            var (tape, ofLevel) = (trace.Tape, _scoreLevel.Record(trace.Tape, level));
            TapeMatrix[] own = Array.ConvertAll(contexts, context => _score.Record(tape, context));
            for (var cell = 0; cell < scores.Length; cell++)
            {
                var (row, horizon) = (cell / own.Length, cell % own.Length);
                scores[cell] = tape.Value(own[horizon].Slice(row, 1)) + tape.Value(ofLevel.Slice(row, 1), horizon);
            }
        }

        trace.Dispose();
    }

    /// <inheritdoc/>
    public INetworkTrace Trace(NetworkInputs inputs) => Record(inputs).Trace;

    private (TapeTrace<TVector> Trace, TapeMatrix[] Contexts, TapeMatrix Level) Record(NetworkInputs inputs)
    {
        var trace = new TapeTrace<TVector>(_tapes, inputs, _sizes);
        var (tape, rows, windows) = (trace.Tape, trace.Rows, trace.Windows);
        var dominant = _frequencies?.Record(tape, rows, inputs);
        var states = _encoder.Record(tape, JoinPatches(tape, rows, dominant, inputs), windows).States;
        var state = states.Slice(states.Rows - windows, windows);
        if (dominant is { } strongest)
            state = tape.Sum(state, _frequencies!.RecordMap(tape, strongest));
        var attended = _attention.Record(tape, state, rows.Slice(rows.Rows - windows, windows), inputs);
        var contexts = _context.Record(trace, _norm.Record(tape, tape.AddGated(_gate.Record(tape, attended), state)));
        var level = tape.Sum(_level.Record(tape, rows), _levelAround.Record(tape, attended));
        trace.End(_head, contexts, level);
        return (trace, contexts, level);
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
