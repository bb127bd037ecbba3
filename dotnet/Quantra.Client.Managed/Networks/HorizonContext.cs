using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Combines a state, for each horizon, with the static columns and the known columns of the session that it ends on.</summary>
internal sealed class HorizonContext<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly InputSizes _sizes;
    private readonly int[] _ends;
    private readonly int _width;
    private readonly int _padded;
    private readonly FloatBuffer _stateMix;
    private readonly FloatBuffer _staticMix;
    private readonly FloatBuffer _knownMix;
    private readonly FloatBuffer _bias;
    private readonly FloatBuffer _gain;
    private readonly FloatBuffer _shift;

    public HorizonContext(NetworkWeights weights, int width, InputSizes sizes, Target target)
    {
        (_sizes, _width, _padded) = (sizes, width, Kernels<TVector>.Padded(width));
        _ends = target.FindEnds(sizes.EncoderLength);
        var inputs = width + sizes.Static + sizes.Known;
        var mix = weights.Take("context.mix.weight", width, inputs);
        _stateMix = PackedWeights.Transposed(mix, inputs, 0, width, 1, width, _padded);
        _staticMix = PackedWeights.Transposed(mix, inputs, width, sizes.Static, 1, width, _padded);
        _knownMix = PackedWeights.Transposed(mix, inputs, width + sizes.Static, sizes.Known, 1, width, _padded);
        _bias = PackedWeights.Bias(weights.Take("context.mix.bias", width), 1, width, _padded);
        _gain = PackedWeights.Bias(weights.Take("context.norm.weight", width), 1, width, _padded);
        _shift = PackedWeights.Bias(weights.Take("context.norm.bias", width), 1, width, _padded);
    }

    /// <summary>Computes the window's part, which is the same for all horizons.</summary>
    /// <param name="state">[rows, padded width]</param>
    /// <param name="inputs">The windows.</param>
    /// <param name="first">The first of the rows in the inputs.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="shared">[rows, padded width] the result.</param>
    public void Share(ref float state, NetworkInputs inputs, int first, int rows, ref float shared)
    {
        Kernels<TVector>.FillRows(ref _bias.First, rows, _padded, ref shared, _padded);
        Kernels<TVector>.AddProduct(ref state, _padded, rows, _width, ref _stateMix.First, _padded, ref shared, _padded);
        if (_sizes.Static > 0)
        {
            Kernels<TVector>.AddProduct(
                ref inputs.Static[first * _sizes.Static], _sizes.Static, rows, _sizes.Static,
                ref _staticMix.First, _padded, ref shared, _padded);
        }
    }

    /// <summary>Computes the contexts of all horizons on a tape.</summary>
    public TapeMatrix[] Record(TapeTrace<TVector> trace, TapeMatrix state)
    {
        var (tape, shared) = (trace.Tape, trace.Tape.Add(trace.Windows, _padded));
        tape.Fill(shared, _bias);
        tape.AddProduct(state, 0, _width, _stateMix, shared);
        if (_sizes.Static > 0)
            tape.AddProduct(trace.Static, 0, _sizes.Static, _staticMix, shared);
        return Array.ConvertAll(_ends, end =>
        {
            var context = tape.Joined(shared);
            if (_sizes.Known > 0)
                tape.AddProduct(trace.Known.Slice(end * trace.Windows, trace.Windows), 0, _sizes.Known, _knownMix, context);
            tape.Elu(context);
            return tape.Normalise(context, _width, _gain, _shift);
        });
    }

    /// <summary>Computes the context of one horizon.</summary>
    /// <param name="shared">[rows, padded width] from <see cref="Share"/>.</param>
    /// <param name="inputs">The windows.</param>
    /// <param name="first">The first of the rows in the inputs.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="horizon">Index of the horizon.</param>
    /// <param name="context">[rows, padded width] the result.</param>
    public void Run(ref float shared, NetworkInputs inputs, int first, int rows, int horizon, ref float context)
    {
        Unsafe.CopyBlockUnaligned(
            ref Unsafe.As<float, byte>(ref context), ref Unsafe.As<float, byte>(ref shared), (uint)(rows * _padded * sizeof(float)));
        if (_sizes.Known > 0)
        {
            var length = (_sizes.EncoderLength + _sizes.FutureLength) * _sizes.Known;
            var isShared = inputs.Known.Length == length;
            ref var known = ref inputs.Known[(isShared ? 0 : first * length) + (_ends[horizon] * _sizes.Known)];
            Kernels<TVector>.AddProduct(
                ref known, isShared ? 0 : length, rows, _sizes.Known, ref _knownMix.First, _padded, ref context, _padded);
        }
        Kernels<TVector>.Elu(ref context, rows * _padded);
        Kernels<TVector>.Normalise(ref context, _padded, rows, _width, ref _gain.First, ref _shift.First);
    }
}
