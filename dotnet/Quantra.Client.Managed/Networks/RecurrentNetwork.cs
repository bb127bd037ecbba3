namespace Quantra.Client.Managed;

/// <summary>The kinds "lstm" and "gru": recurrent layers over the sessions, then a context and a head for each horizon.</summary>
internal sealed class RecurrentNetwork<TVector> : IDifferentiableNetwork
    where TVector : struct, IVector<TVector>
{
    private readonly InputSizes _sizes;
    private readonly int _horizons;
    private readonly int _levels;
    private readonly RecurrentLayer<TVector>[] _layers;
    private readonly HorizonContext<TVector> _context;
    private readonly QuantileHead<TVector> _head;
    private readonly UnusedObjects<Workspace> _workspaces = new();
    private readonly UnusedObjects<Tape<TVector>> _tapes = new();

    public RecurrentNetwork(
        NetworkWeights weights, NetworkSettings settings, InputSizes sizes, Target target, double[] levels)
    {
        var hidden = settings.Hidden;
        (_sizes, _horizons, _levels) = (sizes, target.Horizons.Length, levels.Length);
        _layers = new RecurrentLayer<TVector>[settings.Layers];
        for (var k = 0; k < _layers.Length; k++)
        {
            _layers[k] = new RecurrentLayer<TVector>(
                weights, settings.Kind, k, settings.Kind == "lstm" ? 4 : 3, k == 0 ? sizes.RowWidth : hidden, hidden);
        }
        _context = new HorizonContext<TVector>(weights, hidden, sizes, target);
        _head = new QuantileHead<TVector>(weights, hidden, _horizons, levels);
    }

    /// <inheritdoc/>
    public void Run(NetworkInputs inputs, Span<double> units)
    {
        if (!_workspaces.TryTake(out var work))
            work = new Workspace(this);
        var cells = _horizons * _levels;
        for (var first = 0; first < inputs.Rows; first += SessionRows.RowsAtOnce)
        {
            var rows = Math.Min(SessionRows.RowsAtOnce, inputs.Rows - first);
            RunBlock(inputs, first, rows, work, units.Slice(first * cells, rows * cells));
        }
        _workspaces.Add(work);
    }

    /// <inheritdoc/>
    public INetworkTrace Trace(NetworkInputs inputs)
    {
        var trace = new TapeTrace<TVector>(_tapes, inputs, _sizes);
        var x = trace.Rows;
        foreach (var layer in _layers)
            x = layer.Record(trace.Tape, x, trace.Windows).States;
        trace.End(_head, _context.Record(trace, x.Slice(x.Rows - trace.Windows, trace.Windows)));
        return trace;
    }

    private void RunBlock(NetworkInputs inputs, int first, int rows, Workspace work, Span<double> units)
    {
        var width = _layers[0].Width;
        SessionRows.Write(inputs, _sizes, first, rows, work.Rows.Span, SessionRows.Stride(_sizes));
        ref var x = ref work.Rows.First;
        var stride = SessionRows.Stride(_sizes);
        var (states, others) = (work.States, work.OtherStates);
        foreach (var layer in _layers)
        {
            work.State.Span.Clear();
            work.Cell.Span.Clear();
            layer.Run(
                ref x, stride, _sizes.EncoderLength, rows, ref work.State.First, ref work.Cell.First, work.Gates, ref states.First);
            x = ref states.First;
            (stride, states, others) = (width, others, states);
        }
        _context.Share(ref work.State.First, inputs, first, rows, ref work.Shared.First);
        for (var horizon = 0; horizon < _horizons; horizon++)
        {
            _context.Run(ref work.Shared.First, inputs, first, rows, horizon, ref work.Context.First);
            _head.Run(ref work.Context.First, width, rows, horizon, work.Head, [], units);
        }
    }

    private sealed class Workspace
    {
        public Workspace(RecurrentNetwork<TVector> network)
        {
            const int rows = SessionRows.RowsAtOnce;
            var width = network._layers[0].Width;
            var cells = network._sizes.EncoderLength * rows;
            Rows = new FloatBuffer(cells * SessionRows.Stride(network._sizes));
            States = new FloatBuffer(cells * width);
            OtherStates = new FloatBuffer(network._layers.Length > 1 ? cells * width : 0);
            State = new FloatBuffer(rows * width);
            Cell = new FloatBuffer(rows * width);
            Shared = new FloatBuffer(rows * width);
            Context = new FloatBuffer(rows * width);
            Gates = new FloatBuffer(network._layers[0].Scratch(rows));
            Head = new FloatBuffer(network._head.Scratch(rows));
        }

        public FloatBuffer Rows { get; }

        public FloatBuffer States { get; }

        public FloatBuffer OtherStates { get; }

        public FloatBuffer State { get; }

        public FloatBuffer Cell { get; }

        public FloatBuffer Shared { get; }

        public FloatBuffer Context { get; }

        public FloatBuffer Gates { get; }

        public FloatBuffer Head { get; }
    }
}
