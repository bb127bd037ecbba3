namespace Quantra.Client.Managed;

/// <summary>The kind "hybrid": an LSTM, then Transformer layers over its states, then a context and a head for each horizon.</summary>
internal sealed class HybridNetwork<TVector> : IDifferentiableNetwork
    where TVector : struct, IVector<TVector>
{
    /// <summary>Windows of one block; more would not stay in the processor's cache.</summary>
    private const int WindowsAtOnce = 8;

    private readonly InputSizes _sizes;
    private readonly int _horizons;
    private readonly int _levels;
    private readonly RecurrentLayer<TVector>[] _layers;
    private readonly TransformerBlock<TVector>[] _blocks;
    private readonly HorizonContext<TVector> _context;
    private readonly QuantileHead<TVector> _head;
    private readonly UnusedObjects<Workspace> _workspaces = new();
    private readonly UnusedObjects<Tape<TVector>> _tapes = new();

    public HybridNetwork(NetworkWeights weights, NetworkSettings settings, InputSizes sizes, Target target, double[] levels)
    {
        var hidden = settings.Hidden;
        (_sizes, _horizons, _levels) = (sizes, target.Horizons.Length, levels.Length);
        _layers = new RecurrentLayer<TVector>[settings.Layers];
        for (var k = 0; k < _layers.Length; k++)
            _layers[k] = new RecurrentLayer<TVector>(weights, "lstm", k, 4, k == 0 ? sizes.RowWidth : hidden, hidden);
        _blocks = new TransformerBlock<TVector>[settings.Blocks];
        for (var k = 0; k < _blocks.Length; k++)
            _blocks[k] = new TransformerBlock<TVector>(weights, $"blocks.{k}", hidden, settings.Heads);
        _context = new HorizonContext<TVector>(weights, hidden, sizes, target);
        _head = new QuantileHead<TVector>(weights, hidden, _horizons, levels);
    }

    /// <inheritdoc/>
    public void Run(NetworkInputs inputs, Span<double> units)
    {
        if (!_workspaces.TryTake(out var work))
            work = new Workspace(this);
        var cells = _horizons * _levels;
        for (var first = 0; first < inputs.Rows; first += WindowsAtOnce)
        {
            var windows = Math.Min(WindowsAtOnce, inputs.Rows - first);
            RunBlock(inputs, first, windows, work, units.Slice(first * cells, windows * cells));
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
        for (var k = 0; k < _blocks.Length; k++)
            x = _blocks[k].Record(trace.Tape, x, trace.Windows, k == _blocks.Length - 1 ? _sizes.EncoderLength - 1 : 0);
        trace.End(_head, _context.Record(trace, x));
        return trace;
    }

    private void RunBlock(NetworkInputs inputs, int first, int windows, Workspace work, Span<double> units)
    {
        var (sessions, width) = (_sizes.EncoderLength, _layers[0].Width);
        var stride = SessionRows.Stride(_sizes);
        SessionRows.Write(inputs, _sizes, first, windows, work.Rows.Span, stride);
        ref var x = ref work.Rows.First;
        var (states, others) = (work.States, work.OtherStates);
        foreach (var layer in _layers)
        {
            work.State.Span.Clear();
            work.Cell.Span.Clear();
            layer.Run(ref x, stride, sessions, windows, ref work.State.First, ref work.Cell.First, work.Gates, ref states.First);
            x = ref states.First;
            (stride, states, others) = (width, others, states);
        }
        for (var k = 0; k < _blocks.Length; k++)
            _blocks[k].Run(ref x, sessions, windows, k == _blocks.Length - 1 ? sessions - 1 : 0, ref work.Scratch.First);
        ref var last = ref System.Runtime.CompilerServices.Unsafe.Add(ref x, (sessions - 1) * windows * width);
        _context.Share(ref last, inputs, first, windows, ref work.State.First);
        for (var horizon = 0; horizon < _horizons; horizon++)
        {
            _context.Run(ref work.State.First, inputs, first, windows, horizon, ref work.Cell.First);
            _head.Run(ref work.Cell.First, width, windows, horizon, work.Head, [], units);
        }
    }

    private sealed class Workspace
    {
        public Workspace(HybridNetwork<TVector> network)
        {
            var width = network._layers[0].Width;
            var (sessions, cells) = (network._sizes.EncoderLength, network._sizes.EncoderLength * WindowsAtOnce);
            Rows = new FloatBuffer(cells * SessionRows.Stride(network._sizes));
            States = new FloatBuffer(cells * width);
            OtherStates = new FloatBuffer(network._layers.Length > 1 ? cells * width : 0);
            State = new FloatBuffer(WindowsAtOnce * width);
            Cell = new FloatBuffer(WindowsAtOnce * width);
            Gates = new FloatBuffer(network._layers[0].Scratch(WindowsAtOnce));
            Head = new FloatBuffer(network._head.Scratch(WindowsAtOnce));
            Scratch = new FloatBuffer(network._blocks[0].Scratch(sessions, WindowsAtOnce));
        }

        public FloatBuffer Rows { get; }

        public FloatBuffer States { get; }

        public FloatBuffer OtherStates { get; }

        public FloatBuffer State { get; }

        public FloatBuffer Cell { get; }

        public FloatBuffer Gates { get; }

        public FloatBuffer Head { get; }

        public FloatBuffer Scratch { get; }
    }
}
