using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>The kind "tft": the Temporal Fusion Transformer (Lim et al. 2021) with a gated linear highway.</summary>
/// <remarks>All intermediate results of a block of windows are [sessions, windows, width].</remarks>
internal sealed class TftNetwork<TVector> : IDifferentiableNetwork
    where TVector : struct, IVector<TVector>
{
    /// <summary>Windows of one block; more would not stay in the processor's cache.</summary>
    private const int WindowsAtOnce = 8;

    private readonly InputSizes _sizes;
    private readonly int[] _ends;
    private readonly int _levels;
    private readonly int _width;
    private readonly StaticEncoder<TVector>? _static;
    private readonly VariableSelection<TVector> _past;
    private readonly VariableSelection<TVector>? _future;
    private readonly RecurrentLayer<TVector> _encoder;
    private readonly RecurrentLayer<TVector> _decoder;
    private readonly GatedAddNorm<TVector> _local;
    private readonly GatedResidual<TVector> _enrichment;
    private readonly InterpretableAttention<TVector> _attention;
    private readonly GatedAddNorm<TVector> _attended;
    private readonly GatedResidual<TVector> _feedForward;
    private readonly GatedAddNorm<TVector> _last;
    private readonly QuantileHead<TVector> _head;
    private readonly Highway<TVector>? _highway;
    private readonly UnusedObjects<Workspace> _workspaces = new();
    private readonly UnusedObjects<Tape<TVector>> _tapes = new();

    public TftNetwork(NetworkWeights weights, NetworkSettings settings, InputSizes sizes, Target target, double[] levels)
    {
        var width = settings.Hidden;
        var hasStatic = sizes.Static > 0;
        (_sizes, _levels, _width) = (sizes, levels.Length, Kernels<TVector>.Padded(width));
        _ends = target.FindEnds(sizes.EncoderLength);
        _static = hasStatic ? new StaticEncoder<TVector>(weights, sizes.StaticWidths, width) : null;
        _past = new VariableSelection<TVector>(weights, "past", Ones(sizes.RowWidth), width, hasStatic);
        _future = sizes.Known > 0 ? new VariableSelection<TVector>(weights, "future", Ones(sizes.Known), width, hasStatic) : null;
        _encoder = new RecurrentLayer<TVector>(weights, "encoder", 0, 4, width, width);
        _decoder = new RecurrentLayer<TVector>(weights, "decoder", 0, 4, width, width);
        _local = new GatedAddNorm<TVector>(weights, "local", width, width);
        _enrichment = new GatedResidual<TVector>(weights, "enrichment", width, hasStatic);
        _attention = new InterpretableAttention<TVector>(weights, width, settings.Heads, _ends, Sessions);
        _attended = new GatedAddNorm<TVector>(weights, "attended", width, width);
        _feedForward = new GatedResidual<TVector>(weights, "feed_forward", width, context: false);
        _last = new GatedAddNorm<TVector>(weights, "last", width, width);
        _head = new QuantileHead<TVector>(weights, width, _ends.Length, levels);
        _highway = settings.HasHighway ? new Highway<TVector>(weights, sizes, width, _ends.Length) : null;
    }

    private int Sessions => _sizes.EncoderLength + _sizes.FutureLength;

    private int KnownStride => Kernels<TVector>.Padded(_sizes.Known);

    /// <inheritdoc/>
    public void Run(NetworkInputs inputs, Span<double> units)
    {
        if (!_workspaces.TryTake(out var work))
            work = new Workspace(this);
        var cells = _ends.Length * _levels;
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
        var (tape, windows) = (trace.Tape, trace.Windows);
        var encoded = _static?.Record(tape, trace.Static);
        var contexts = encoded?.Contexts;
        var past = _past.Record(tape, trace.Rows, contexts?[0]);
        var ahead = trace.Known.Slice(_sizes.EncoderLength * windows, _sizes.FutureLength * windows);
        var future = _future?.Record(tape, ahead, contexts?[0]);
        var selected = future?.Selected ?? tape.Add(ahead.Rows, _width);
        var (states, cells) = _encoder.Record(tape, past.Selected, windows, contexts is null ? null : (contexts[2], contexts[3]));
        var last = states.Rows - windows;
        var (later, _) = _decoder.Record(tape, selected, windows, (states.Slice(last, windows), cells.Slice(last, windows)));
        var local = _local.Record(tape, tape.Joined(states, later), tape.Joined(past.Selected, selected));
        var enriched = _enrichment.Record(tape, local, contexts?[1]);
        var queries = SelectEnds(enriched);
        var (attended, shares) = _attention.Record(tape, enriched, queries, windows);
        var decoded = _last.Record(tape, _feedForward.Record(tape, _attended.Record(tape, attended, queries), null), SelectEnds(local));
        TapeMatrix[] read = [.. Enumerable.Range(0, _ends.Length).Select(horizon => decoded.Slice(horizon * windows, windows))];
        trace.End(_head, read, _highway?.RecordMap(tape, trace.Rows, windows), _highway is null ? [] : Array.ConvertAll(read, context => _highway.RecordGate(tape, context)));
        trace.KeepShares(past.Weights, future?.Weights, encoded?.Weights, shares);
        return trace;

        TapeMatrix SelectEnds(TapeMatrix sessions) => tape.Joined(Array.ConvertAll(_ends, end => sessions.Slice(end * windows, windows)));
    }

    private static int[] Ones(int count) => [.. Enumerable.Repeat(1, count)];

    private void RunBlock(NetworkInputs inputs, int first, int windows, Workspace work, Span<double> units)
    {
        var rows = Sessions * windows;
        EncodeStatic(inputs, first, windows, work);
        Select(inputs, first, windows, work);
        // the LSTMs read all sessions (section 4.5.1, equation 17)
        var pastRows = _sizes.EncoderLength * windows;
        _encoder.Run(
            ref work.Selected.First, _width, _sizes.EncoderLength, windows, ref work.State.First, ref work.Cell.First, work.Gates, ref work.States.First);
        _decoder.Run(
            ref work.Selected.At(pastRows * _width), _width, _sizes.FutureLength, windows, ref work.State.First, ref work.Cell.First,
            work.Gates, ref work.States.At(pastRows * _width));
        var local = work.Selected;
        _local.Run(ref work.States.First, _width, rows, ref work.Scratch.First, ref local.First);
        // the last sessions of the horizons attend to all sessions (equations 18 to 22)
        var enriched = work.States;
        local.Span[..(rows * _width)].CopyTo(enriched.Span);
        _enrichment.MapContext(ref Context(work, windows, 1), windows, ref work.Mapped.First);
        _enrichment.Run(ref enriched.First, rows, ref work.Mapped.First, _static is null ? 0 : windows, ref work.Scratch.First);
        _attention.Run(ref enriched.First, windows, ref work.Scratch.First, ref work.Attended.First);
        var queries = _ends.Length * windows;
        Gather(enriched, windows, work.Decoded);
        _attended.Run(ref work.Attended.First, _width, queries, ref work.Scratch.First, ref work.Decoded.First);
        _feedForward.Run(ref work.Decoded.First, queries, ref work.Mapped.First, 0, ref work.Scratch.First);
        Gather(local, windows, work.Attended);
        _last.Run(ref work.Decoded.First, _width, queries, ref work.Scratch.First, ref work.Attended.First);
        WriteUnits(inputs, first, windows, work, units);
    }

    private ref float Context(Workspace work, int windows, int index) => ref work.Contexts.At(index * windows * _width);

    private void EncodeStatic(NetworkInputs inputs, int first, int windows, Workspace work)
    {
        work.State.Span.Clear();
        work.Cell.Span.Clear();
        if (_static is null)
            return;
        _static.Run(ref inputs.Static[first * _sizes.Static], _sizes.Static, windows, ref work.Scratch.First, ref work.Contexts.First);
        var cells = windows * _width;
        work.Contexts.Span.Slice(2 * cells, cells).CopyTo(work.State.Span);
        work.Contexts.Span.Slice(3 * cells, cells).CopyTo(work.Cell.Span);
    }

    /// <summary>Selects the variables of past and future sessions.</summary>
    private void Select(NetworkInputs inputs, int first, int windows, Workspace work)
    {
        var stride = SessionRows.Stride(_sizes);
        var (pastRows, futureRows) = (_sizes.EncoderLength * windows, _sizes.FutureLength * windows);
        var contexts = _static is null ? 0 : windows;
        SessionRows.Write(inputs, _sizes, first, windows, work.Rows.Span, stride);
        _past.MapContext(ref Context(work, windows, 0), windows, ref work.Mapped.First);
        _past.Run(ref work.Rows.First, stride, pastRows, ref work.Mapped.First, contexts, ref work.Scratch.First, ref work.Selected.First);
        if (_future is null)
        {
            work.Selected.Span.Slice(pastRows * _width, futureRows * _width).Clear();
            return;
        }
        WriteFuture(inputs, first, windows, work.Rows.Span);
        _future.MapContext(ref Context(work, windows, 0), windows, ref work.Mapped.First);
        _future.Run(
            ref work.Rows.First, KnownStride, futureRows, ref work.Mapped.First, contexts,
            ref work.Scratch.First, ref work.Selected.At(pastRows * _width));
    }

    private void WriteFuture(NetworkInputs inputs, int first, int windows, Span<float> rows)
    {
        for (var window = 0; window < windows; window++)
        {
            var known = inputs.KnownOf(first + window, Sessions * _sizes.Known);
            for (var session = 0; session < _sizes.FutureLength; session++)
            {
                known.Slice((_sizes.EncoderLength + session) * _sizes.Known, _sizes.Known)
                    .CopyTo(rows[(((session * windows) + window) * KnownStride)..]);
            }
        }
    }

    /// <summary>Copies the sessions that horizons end on.</summary>
    private void Gather(FloatBuffer sessions, int windows, FloatBuffer result)
    {
        var cells = windows * _width;
        for (var k = 0; k < _ends.Length; k++)
            sessions.Span.Slice(_ends[k] * cells, cells).CopyTo(result.Span[(k * cells)..]);
    }

    private void WriteUnits(NetworkInputs inputs, int first, int windows, Workspace work, Span<double> units)
    {
        Span<float> terms = stackalloc float[WindowsAtOnce];
        _highway?.Map(inputs, first, windows, ref work.Scratch.First);
        for (var horizon = 0; horizon < _ends.Length; horizon++)
        {
            ref var states = ref work.Attended.At(horizon * windows * _width);
            _highway?.Terms(ref states, _width, windows, horizon, ref work.Scratch.First, terms);
            _head.Run(ref states, _width, windows, horizon, work.Head, _highway is null ? [] : terms, units);
        }
    }

    private sealed class Workspace
    {
        public Workspace(TftNetwork<TVector> network)
        {
            var (sizes, width) = (network._sizes, network._width);
            var cells = network.Sessions * WindowsAtOnce * width;
            var queries = network._ends.Length * WindowsAtOnce * width;
            Rows = new FloatBuffer(WindowsAtOnce * Math.Max(
                sizes.EncoderLength * SessionRows.Stride(sizes), sizes.FutureLength * network.KnownStride));
            Selected = new FloatBuffer(cells);
            States = new FloatBuffer(cells);
            State = new FloatBuffer(WindowsAtOnce * width);
            Cell = new FloatBuffer(WindowsAtOnce * width);
            Contexts = new FloatBuffer(StaticEncoder<TVector>.Contexts * WindowsAtOnce * width);
            Mapped = new FloatBuffer(WindowsAtOnce * width);
            Decoded = new FloatBuffer(queries);
            Attended = new FloatBuffer(queries);
            Gates = new FloatBuffer(network._encoder.Scratch(WindowsAtOnce));
            Head = new FloatBuffer(network._head.Scratch(WindowsAtOnce));
            Scratch = new FloatBuffer(new[]
            {
                network._past.Scratch,
                network._future?.Scratch ?? 0,
                network._static?.Scratch(WindowsAtOnce) ?? 0,
                network._attention.Scratch(WindowsAtOnce),
                network._highway?.Scratch(WindowsAtOnce) ?? 0,
                network.Sessions * WindowsAtOnce * Math.Max(network._local.GateWidth, network._enrichment.RowScratch),
                network._ends.Length * WindowsAtOnce * network._feedForward.RowScratch,
            }.Max());
        }

        public FloatBuffer Rows { get; }

        public FloatBuffer Selected { get; }

        public FloatBuffer States { get; }

        public FloatBuffer State { get; }

        public FloatBuffer Cell { get; }

        public FloatBuffer Contexts { get; }

        public FloatBuffer Mapped { get; }

        public FloatBuffer Decoded { get; }

        public FloatBuffer Attended { get; }

        public FloatBuffer Gates { get; }

        public FloatBuffer Head { get; }

        public FloatBuffer Scratch { get; }
    }
}
