using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>One layer of an LSTM or a GRU over sequences, session first.</summary>
/// <remarks>
/// Gates of the LSTM are input, forget, cell and output; those of the GRU reset, update and new, where the reset gate
/// multiplies the state after its linear map and bias.
/// </remarks>
internal sealed class RecurrentLayer<TVector>
    where TVector : struct, IVector<TVector>
{
    /// <summary>Rows of sessions that are multiplied with the input's weights at once.</summary>
    private const int RowsAtOnce = 64;

    private readonly int _gates;
    private readonly int _inputs;
    private readonly int _hidden;
    private readonly FloatBuffer _input;
    private readonly FloatBuffer _recurrent;
    private readonly FloatBuffer _bias;
    private readonly FloatBuffer _stateBias;

    /// <summary>Reads the weights of a layer.</summary>
    /// <param name="weights">The network's weights.</param>
    /// <param name="module">Name of the module in torch, such as "lstm".</param>
    /// <param name="layer">Index of the layer.</param>
    /// <param name="gates">4 for an LSTM, 3 for a GRU.</param>
    /// <param name="inputs">Width of the input.</param>
    /// <param name="hidden">Width of the state.</param>
    public RecurrentLayer(NetworkWeights weights, string module, int layer, int gates, int inputs, int hidden)
    {
        (_gates, _inputs, _hidden) = (gates, inputs, hidden);
        Width = Kernels<TVector>.Padded(hidden);
        var input = weights.Take($"{module}.weight_ih_l{layer}", gates * hidden, inputs);
        var recurrent = weights.Take($"{module}.weight_hh_l{layer}", gates * hidden, hidden);
        var bias = weights.Take($"{module}.bias_ih_l{layer}", gates * hidden);
        var stateBias = weights.Take($"{module}.bias_hh_l{layer}", gates * hidden);
        for (var k = 0; k < (IsLstm ? gates : 2) * hidden; k++)
            bias[k] += stateBias[k];
        _input = PackedWeights.Transposed(input, inputs, 0, inputs, gates, hidden, Width);
        _recurrent = PackedWeights.Transposed(recurrent, hidden, 0, hidden, gates, hidden, Width);
        _bias = PackedWeights.Bias(bias, gates, hidden, Width);
        _stateBias = PackedWeights.Bias(stateBias, gates, hidden, Width);
    }

    /// <summary>Padded width of the state.</summary>
    public int Width { get; }

    private bool IsLstm => _gates == 4;

    private int GateWidth => _gates * Width;

    /// <summary>Values that <see cref="Run"/> needs in its scratch memory.</summary>
    /// <param name="rows">Number of rows.</param>
    public int Scratch(int rows) => ((Math.Max(RowsAtOnce, rows) + rows) * GateWidth);

    /// <summary>Runs over a sequence.</summary>
    /// <param name="x">[sessions, rows, stride]</param>
    /// <param name="stride">Padded width of x.</param>
    /// <param name="sessions">Number of sessions.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="state">[rows, Width] initial state, then the last.</param>
    /// <param name="cell">[rows, Width] initial cell of an LSTM, then the last.</param>
    /// <param name="scratch">Memory of <see cref="Scratch"/> values.</param>
    /// <param name="states">[sessions, rows, Width] all states.</param>
    public void Run(
        ref float x, int stride, int sessions, int rows, ref float state, ref float cell, FloatBuffer scratch, ref float states)
    {
        var steps = Math.Max(1, RowsAtOnce / rows);
        ref var gates = ref scratch.First;
        ref var hidden = ref scratch.At(Math.Max(RowsAtOnce, rows) * GateWidth);
        ref var before = ref state;
        for (var session = 0; session < sessions; session++)
        {
            var step = session % steps;
            if (step == 0)
            {
                var count = Math.Min(steps, sessions - session) * rows;
                Kernels<TVector>.FillRows(ref _bias.First, count, GateWidth, ref gates, GateWidth);
                Kernels<TVector>.AddProduct(
                    ref Unsafe.Add(ref x, session * rows * stride), stride, count, _inputs,
                    ref _input.First, GateWidth, ref gates, GateWidth);
            }
            ref var now = ref Unsafe.Add(ref gates, step * rows * GateWidth);
            ref var after = ref Unsafe.Add(ref states, session * rows * Width);
            if (IsLstm)
            {
                Kernels<TVector>.AddProduct(
                    ref before, Width, rows, _hidden, ref _recurrent.First, GateWidth, ref now, GateWidth);
                UpdateLstm(ref now, ref cell, ref after, rows, Width);
            }
            else
            {
                Kernels<TVector>.FillRows(ref _stateBias.First, rows, GateWidth, ref hidden, GateWidth);
                CopyGates(ref now, ref hidden, rows, Width);
                Kernels<TVector>.AddProduct(
                    ref before, Width, rows, _hidden, ref _recurrent.First, GateWidth, ref hidden, GateWidth);
                UpdateGru(ref now, ref hidden, ref before, ref after, rows, Width);
            }
            before = ref after;
        }
        for (var row = 0; row < rows && sessions > 0; row++)
            Kernels<TVector>.Copy(ref Unsafe.Add(ref before, row * Width), Width, ref Unsafe.Add(ref state, row * Width));
    }

    /// <summary>Runs over a sequence on a tape.</summary>
    /// <param name="tape">The tape.</param>
    /// <param name="x">[sessions, rows, width]</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="start">[rows, Width] initial state and cell; null = 0.</param>
    /// <returns>[sessions, rows, Width] all states, and the cells of an LSTM.</returns>
    public (TapeMatrix States, TapeMatrix Cells) Record(Tape<TVector> tape, TapeMatrix x, int rows, (TapeMatrix State, TapeMatrix Cell)? start = null)
    {
        var gates = tape.Add(x.Rows, GateWidth);
        var hidden = IsLstm ? gates : tape.Add(x.Rows, GateWidth);
        var (states, cells) = (tape.Add(rows + x.Rows, Width), tape.Add(IsLstm ? rows + x.Rows : 0, Width));
        tape.Fill(gates, _bias);
        tape.AddProduct(x, 0, _inputs, _input, gates);
        if (start is { } initial)
        {
            tape.CopyTo(initial.State, states.Slice(0, rows));
            tape.CopyTo(initial.Cell, cells.Slice(0, rows));
        }
        for (var first = 0; first < x.Rows; first += rows)
        {
            ref var before = ref tape.Value(states.Slice(first, rows));
            ref var after = ref tape.Value(states.Slice(first + rows, rows));
            ref var own = ref tape.Value(gates.Slice(first, rows));
            ref var mapped = ref tape.Value(hidden.Slice(first, rows));
            if (!IsLstm)
            {
                tape.Fill(hidden.Slice(first, rows), _stateBias);
                CopyGates(ref own, ref mapped, rows, Width);
            }
            Kernels<TVector>.AddProduct(ref before, Width, rows, _hidden, ref _recurrent.First, GateWidth, ref mapped, GateWidth);
            if (IsLstm)
                OpenLstm(ref own, ref tape.Value(cells.Slice(first, rows)), ref tape.Value(cells.Slice(first + rows, rows)), ref after, rows, Width);
            else
                OpenGru(ref own, ref mapped, ref before, ref after, rows, Width);
        }
        tape.Then(() =>
        {
            for (var first = x.Rows - rows; first >= 0; first -= rows)
            {
                var (before, after, own, mapped) = (states.Slice(first, rows), states.Slice(first + rows, rows), gates.Slice(first, rows), hidden.Slice(first, rows));
                if (IsLstm)
                    ReverseLstm(tape, own, cells.Slice(first, rows), cells.Slice(first + rows, rows), after);
                else
                    ReverseGru(tape, own, mapped, before, after);
                tape.AddGradient(mapped, _recurrent, _hidden, ref tape.Gradient(before), Width);
            }
        });
        return (states.Slice(rows, x.Rows), IsLstm ? cells.Slice(rows, x.Rows) : cells);
    }

    /// <summary>As <see cref="UpdateLstm"/>, with the gates in place of their inputs and the cells of each session kept.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void OpenLstm(ref float gates, ref float before, ref float after, ref float state, int rows, int width)
    {
        nuint one = (nuint)width;
        for (var row = 0; row < rows; row++)
        {
            for (nuint k = 0; k < one; k += (nuint)TVector.Lanes)
            {
                var input = Activations<TVector>.Sigmoid(TVector.Load(ref gates, k));
                var forget = Activations<TVector>.Sigmoid(TVector.Load(ref gates, one + k));
                var added = Activations<TVector>.Tanh(TVector.Load(ref gates, (2 * one) + k));
                var output = Activations<TVector>.Sigmoid(TVector.Load(ref gates, (3 * one) + k));
                input.Store(ref gates, k);
                forget.Store(ref gates, one + k);
                added.Store(ref gates, (2 * one) + k);
                output.Store(ref gates, (3 * one) + k);
                var next = (forget * TVector.Load(ref before, k)) + (input * added);
                next.Store(ref after, k);
                (output * Activations<TVector>.Tanh(next)).Store(ref state, k);
            }
            gates = ref Unsafe.Add(ref gates, 4 * width);
            before = ref Unsafe.Add(ref before, width);
            after = ref Unsafe.Add(ref after, width);
            state = ref Unsafe.Add(ref state, width);
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void ReverseLstm(Tape<TVector> tape, TapeMatrix gates, TapeMatrix before, TapeMatrix after, TapeMatrix state)
    {
        var one = TVector.Of(1f);
        for (var row = 0; row < gates.Rows; row++)
        {
            ref var open = ref tape.Value(gates.Slice(row, 1));
            ref var slope = ref tape.Gradient(gates.Slice(row, 1));
            ref var old = ref tape.Value(before.Slice(row, 1));
            ref var oldSlope = ref tape.Gradient(before.Slice(row, 1));
            ref var cell = ref tape.Value(after.Slice(row, 1));
            ref var cellSlope = ref tape.Gradient(after.Slice(row, 1));
            ref var stateSlope = ref tape.Gradient(state.Slice(row, 1));
            nuint width = (nuint)state.Width;
            for (nuint k = 0; k < width; k += (nuint)TVector.Lanes)
            {
                TVector input = TVector.Load(ref open, k), forget = TVector.Load(ref open, width + k);
                TVector added = TVector.Load(ref open, (2 * width) + k), output = TVector.Load(ref open, (3 * width) + k);
                var (bent, upper) = (Activations<TVector>.Tanh(TVector.Load(ref cell, k)), TVector.Load(ref stateSlope, k));
                var own = TVector.MultiplyAdd(upper * output, one - (bent * bent), TVector.Load(ref cellSlope, k));
                (own * added * input * (one - input)).Store(ref slope, k);
                (own * TVector.Load(ref old, k) * forget * (one - forget)).Store(ref slope, width + k);
                (own * input * (one - (added * added))).Store(ref slope, (2 * width) + k);
                (upper * bent * output * (one - output)).Store(ref slope, (3 * width) + k);
                TVector.MultiplyAdd(own, forget, TVector.Load(ref oldSlope, k)).Store(ref oldSlope, k);
            }
        }
    }

    /// <summary>As <see cref="UpdateGru"/>, with the gates in place of their inputs.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void OpenGru(ref float gates, ref float hidden, ref float before, ref float after, int rows, int width)
    {
        nuint one = (nuint)width;
        for (var row = 0; row < rows; row++)
        {
            for (nuint k = 0; k < one; k += (nuint)TVector.Lanes)
            {
                var reset = Activations<TVector>.Sigmoid(TVector.Load(ref hidden, k));
                var update = Activations<TVector>.Sigmoid(TVector.Load(ref hidden, one + k));
                var fresh = Activations<TVector>.Tanh(TVector.Load(ref gates, (2 * one) + k) + (reset * TVector.Load(ref hidden, (2 * one) + k)));
                reset.Store(ref hidden, k);
                update.Store(ref hidden, one + k);
                fresh.Store(ref gates, (2 * one) + k);
                TVector.MultiplyAdd(update, TVector.Load(ref before, k) - fresh, fresh).Store(ref after, k);
            }
            gates = ref Unsafe.Add(ref gates, 3 * width);
            hidden = ref Unsafe.Add(ref hidden, 3 * width);
            before = ref Unsafe.Add(ref before, width);
            after = ref Unsafe.Add(ref after, width);
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void ReverseGru(Tape<TVector> tape, TapeMatrix gates, TapeMatrix hidden, TapeMatrix before, TapeMatrix after)
    {
        var one = TVector.Of(1f);
        for (var row = 0; row < gates.Rows; row++)
        {
            ref var input = ref tape.Value(gates.Slice(row, 1));
            ref var inputSlope = ref tape.Gradient(gates.Slice(row, 1));
            ref var mapped = ref tape.Value(hidden.Slice(row, 1));
            ref var mappedSlope = ref tape.Gradient(hidden.Slice(row, 1));
            ref var old = ref tape.Value(before.Slice(row, 1));
            ref var oldSlope = ref tape.Gradient(before.Slice(row, 1));
            ref var stateSlope = ref tape.Gradient(after.Slice(row, 1));
            nuint width = (nuint)after.Width;
            for (nuint k = 0; k < width; k += (nuint)TVector.Lanes)
            {
                TVector reset = TVector.Load(ref mapped, k), update = TVector.Load(ref mapped, width + k);
                TVector fresh = TVector.Load(ref input, (2 * width) + k), upper = TVector.Load(ref stateSlope, k);
                var own = upper * (one - update) * (one - (fresh * fresh));
                var ofReset = own * TVector.Load(ref mapped, (2 * width) + k) * reset * (one - reset);
                var ofUpdate = upper * (TVector.Load(ref old, k) - fresh) * update * (one - update);
                ofReset.Store(ref inputSlope, k);
                ofReset.Store(ref mappedSlope, k);
                ofUpdate.Store(ref inputSlope, width + k);
                ofUpdate.Store(ref mappedSlope, width + k);
                own.Store(ref inputSlope, (2 * width) + k);
                (own * reset).Store(ref mappedSlope, (2 * width) + k);
                TVector.MultiplyAdd(upper, update, TVector.Load(ref oldSlope, k)).Store(ref oldSlope, k);
            }
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void UpdateLstm(ref float gates, ref float cell, ref float state, int rows, int width)
    {
        nuint one = (nuint)width;
        for (var row = 0; row < rows; row++)
        {
            for (nuint k = 0; k < one; k += (nuint)TVector.Lanes)
            {
                var kept = Activations<TVector>.Gated(TVector.Load(ref gates, one + k), TVector.Load(ref cell, k));
                var added = Activations<TVector>.GatedTanh(TVector.Load(ref gates, k), TVector.Load(ref gates, (2 * one) + k));
                var next = kept + added;
                next.Store(ref cell, k);
                Activations<TVector>.GatedTanh(TVector.Load(ref gates, (3 * one) + k), next).Store(ref state, k);
            }
            gates = ref Unsafe.Add(ref gates, 4 * width);
            cell = ref Unsafe.Add(ref cell, width);
            state = ref Unsafe.Add(ref state, width);
        }
    }

    /// <summary>The new gate's input part stays apart, because the reset gate multiplies only the state's part.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void CopyGates(ref float gates, ref float hidden, int rows, int width)
    {
        for (var row = 0; row < rows; row++)
        {
            Kernels<TVector>.Copy(
                ref Unsafe.Add(ref gates, row * 3 * width), 2 * width, ref Unsafe.Add(ref hidden, row * 3 * width));
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void UpdateGru(ref float gates, ref float hidden, ref float before, ref float after, int rows, int width)
    {
        nuint one = (nuint)width;
        for (var row = 0; row < rows; row++)
        {
            for (nuint k = 0; k < one; k += (nuint)TVector.Lanes)
            {
                var reset = Activations<TVector>.Gated(TVector.Load(ref hidden, k), TVector.Load(ref hidden, (2 * one) + k));
                var fresh = Activations<TVector>.Tanh(TVector.Load(ref gates, (2 * one) + k) + reset);
                var update = Activations<TVector>.Sigmoid(TVector.Load(ref hidden, one + k));
                TVector.MultiplyAdd(update, TVector.Load(ref before, k) - fresh, fresh).Store(ref after, k);
            }
            gates = ref Unsafe.Add(ref gates, 3 * width);
            hidden = ref Unsafe.Add(ref hidden, 3 * width);
            before = ref Unsafe.Add(ref before, width);
            after = ref Unsafe.Add(ref after, width);
        }
    }
}
