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
