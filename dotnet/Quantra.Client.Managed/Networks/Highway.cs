using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Quantra.Client.Managed;

/// <summary>A gated linear map of the observed cells of the newest sessions, added to every quantile of a horizon.</summary>
internal sealed class Highway<TVector>
    where TVector : struct, IVector<TVector>
{
    private const int MostCells = 2048;

    private readonly int _observed;
    private readonly int _skipped;
    private readonly int _stride;
    private readonly SequenceLinear<TVector> _map;
    private readonly Linear<TVector> _gate;

    public Highway(NetworkWeights weights, InputSizes sizes, int width, int horizons)
    {
        var sessions = Math.Max(1, Math.Min(sizes.EncoderLength, MostCells / sizes.Observed));
        _observed = sizes.Observed;
        _stride = sizes.EncoderLength * sizes.Observed;
        _skipped = (sizes.EncoderLength - sessions) * sizes.Observed;
        _map = new SequenceLinear<TVector>(weights.Take("highway.weight", horizons, sessions * _observed), horizons, sessions, _observed);
        _gate = Linear<TVector>.Read(weights, "highway.gate", width, 1);
    }

    /// <summary>Values of scratch memory.</summary>
    public int Scratch(int rows) => rows * ((2 * _map.Width) + _gate.Width);

    /// <summary>Computes the linear maps of all horizons, for <see cref="Terms"/>; one sum for each session, then theirs.</summary>
    public void Map(NetworkInputs inputs, int first, int rows, ref float scratch)
    {
        var width = _map.Width;
        var sums = MemoryMarshal.CreateSpan(ref scratch, rows * width);
        var parts = MemoryMarshal.CreateSpan(ref Unsafe.Add(ref scratch, rows * width), rows * width);
        sums.Clear();
        for (var session = 0; session < _map.Steps.Length; session++)
        {
            ref var cells = ref inputs.Observed[(first * _stride) + _skipped + (session * _observed)];
            parts.Clear();
            Kernels<TVector>.AddProduct(ref cells, _stride, rows, _observed, ref _map.Steps[session].First, width, ref parts[0], width);
            Kernels<TVector>.Add(ref parts[0], rows * width, ref sums[0]);
        }
    }

    /// <summary>Computes the linear maps of all horizons on a tape.</summary>
    /// <param name="tape">The tape.</param>
    /// <param name="rows">[sessions, windows, width] rows that begin with the observed features.</param>
    /// <param name="windows">Number of windows.</param>
    public TapeMatrix RecordMap(Tape<TVector> tape, TapeMatrix rows, int windows) =>
        _map.Record(tape, rows.Slice(_skipped / _observed * windows, _map.Steps.Length * windows));

    /// <summary>The gate of each row of states on a tape, before the sigmoid.</summary>
    public TapeMatrix RecordGate(Tape<TVector> tape, TapeMatrix states) => _gate.Record(tape, states);

    /// <summary>Computes the term of each row for one horizon.</summary>
    /// <param name="states">[rows, stride] what the head reads.</param>
    /// <param name="stride">Distance of rows.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="horizon">Index of the horizon.</param>
    /// <param name="scratch">Memory of Scratch values, after <see cref="Map"/>.</param>
    /// <param name="terms">[rows] the result.</param>
    public void Terms(ref float states, int stride, int rows, int horizon, ref float scratch, Span<float> terms)
    {
        ref var gates = ref Unsafe.Add(ref scratch, 2 * rows * _map.Width);
        _gate.Run(ref states, stride, rows, ref gates);
        for (var row = 0; row < rows; row++)
        {
            ref var gate = ref Unsafe.Add(ref gates, row * _gate.Width);
            Activations<TVector>.Sigmoid(TVector.Load(ref gate, 0)).Store(ref gate, 0);
            terms[row] = 2 * gate * Unsafe.Add(ref scratch, (row * _map.Width) + horizon);
        }
    }
}
