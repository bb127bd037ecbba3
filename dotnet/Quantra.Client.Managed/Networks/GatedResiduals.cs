using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>LayerNorm(skip + GLU(x)), where GLU(x) = value * sigmoid(switch); equations 4, 17, 20 and 22 of Lim et al. 2021.</summary>
internal sealed class GatedAddNorm<TVector>(NetworkWeights weights, string module, int inputs, int outputs)
    where TVector : struct, IVector<TVector>
{
    private readonly Linear<TVector> _gate = Linear<TVector>.Read(weights, $"{module}.gate", inputs, outputs, groups: 2);
    private readonly LayerNorm<TVector> _norm = LayerNorm<TVector>.Read(weights, $"{module}.norm", outputs);

    /// <summary>Padded width of the gates, which scratch memory holds for each row.</summary>
    public int GateWidth => _gate.Width;

    /// <summary>Replaces the skip by the result.</summary>
    /// <param name="x">[rows, stride]</param>
    /// <param name="stride">Distance of rows of x.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="gates">Memory of rows * GateWidth values.</param>
    /// <param name="skip">[rows, padded outputs] the skip, then the result.</param>
    public void Run(ref float x, int stride, int rows, ref float gates, ref float skip)
    {
        _gate.Run(ref x, stride, rows, ref gates);
        Kernels<TVector>.AddGated(ref gates, rows, GateWidth / 2, ref skip);
        _norm.Run(ref skip, rows);
    }

    /// <summary>As <see cref="Run"/>, on a tape.</summary>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix x, TapeMatrix skip) =>
        _norm.Record(tape, tape.AddGated(_gate.Record(tape, x), skip));
}

/// <summary>A gated residual network without its first layer and its skip: LayerNorm(skip + GLU(W1 ELU(first) + b1)).</summary>
internal sealed class GatedRest<TVector>(NetworkWeights weights, string module, int hidden, int outputs, bool context)
    where TVector : struct, IVector<TVector>
{
    private readonly Linear<TVector>? _context =
        context ? Linear<TVector>.Read(weights, $"{module}.context", hidden, hidden, bias: false) : null;

    private readonly Linear<TVector> _second = Linear<TVector>.Read(weights, $"{module}.second", hidden, hidden);
    private readonly GatedAddNorm<TVector> _add = new(weights, $"{module}.add", hidden, outputs);

    /// <summary>Values of scratch memory for each row.</summary>
    public int RowScratch => _second.Width + _add.GateWidth;

    /// <summary>Computes the context's part of the first layer for each window; 0 without a context.</summary>
    /// <param name="contexts">[windows, padded hidden]</param>
    /// <param name="windows">Number of windows.</param>
    /// <param name="result">[windows, padded hidden]</param>
    public void MapContext(ref float contexts, int windows, ref float result) =>
        _context?.Run(ref contexts, _second.Width, windows, ref result);

    /// <summary>Replaces the skip by the result.</summary>
    /// <param name="first">[rows, padded hidden] result of the first layer; is changed.</param>
    /// <param name="rowsBefore">Number of rows of sessions before the first.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="contexts">[windows, padded hidden] from <see cref="MapContext"/>.</param>
    /// <param name="windows">Number of windows; 0 without a context.</param>
    /// <param name="scratch">Memory of rows * RowScratch values.</param>
    /// <param name="skip">[rows, padded outputs] the skip, then the result.</param>
    public void Run(
        ref float first, int rowsBefore, int rows, ref float contexts, int windows, ref float scratch, ref float skip)
    {
        var width = _second.Width;
        if (windows > 0)
            Kernels<TVector>.AddOfWindows(ref first, width, rowsBefore, rows, ref contexts, windows);
        Kernels<TVector>.Elu(ref first, rows * width);
        _second.Run(ref first, width, rows, ref scratch);
        _add.Run(ref scratch, width, rows, ref Unsafe.Add(ref scratch, rows * width), ref skip);
    }

    /// <summary>As <see cref="Run"/>, on a tape; changes the first layer's result.</summary>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix first, TapeMatrix? context, TapeMatrix skip)
    {
        if (_context is not null && context is { } windows)
            tape.AddOfWindows(first, _context.Record(tape, windows));
        tape.Elu(first);
        return _add.Record(tape, _second.Record(tape, first), skip);
    }
}

/// <summary>Gated residual network: LayerNorm(x + GLU(W1 ELU(W2 x + W3 context + b2) + b1)); equations 2 to 4.</summary>
internal sealed class GatedResidual<TVector>(NetworkWeights weights, string module, int width, bool context)
    where TVector : struct, IVector<TVector>
{
    private readonly Linear<TVector> _first = Linear<TVector>.Read(weights, $"{module}.first", width, width);
    private readonly GatedRest<TVector> _rest = new(weights, $"{module}.rest", width, width, context);

    /// <summary>Values of scratch memory for each row.</summary>
    public int RowScratch => _first.Width + _rest.RowScratch;

    /// <summary>As <see cref="GatedRest{TVector}.MapContext"/>.</summary>
    public void MapContext(ref float contexts, int windows, ref float result) => _rest.MapContext(ref contexts, windows, ref result);

    /// <summary>Replaces x [rows, padded width] by the result.</summary>
    public void Run(ref float x, int rows, ref float contexts, int windows, ref float scratch)
    {
        _first.Run(ref x, _first.Width, rows, ref scratch);
        _rest.Run(ref scratch, 0, rows, ref contexts, windows, ref Unsafe.Add(ref scratch, rows * _first.Width), ref x);
    }

    /// <summary>As <see cref="Run"/>, on a tape.</summary>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix x, TapeMatrix? context) => _rest.Record(tape, _first.Record(tape, x), context, x);
}

/// <summary>The weights of parallel gated residual networks of one width, with the second layer merged into the gate's.</summary>
/// <remarks>Nothing lies between the two layers in a forecast, so their product is one layer, computed once in float64.</remarks>
internal sealed class GatedResidualWeights
{
    private readonly int _width;
    private readonly float[] _first;
    private readonly float[] _firstBias;
    private readonly float[] _second;
    private readonly float[] _secondBias;
    private readonly float[] _gate;
    private readonly float[] _gateBias;
    private readonly float[] _gain;
    private readonly float[] _shift;

    public GatedResidualWeights(NetworkWeights weights, string module, int count, int width)
    {
        _width = width;
        _first = weights.Take($"{module}.first", count, width, width);
        _firstBias = weights.Take($"{module}.first_bias", count, 1, width);
        _second = weights.Take($"{module}.second", count, width, width);
        _secondBias = weights.Take($"{module}.second_bias", count, 1, width);
        _gate = weights.Take($"{module}.gate", count, width, 2 * width);
        _gateBias = weights.Take($"{module}.gate_bias", count, 1, 2 * width);
        _gain = weights.Take($"{module}.gain", count, 1, width);
        _shift = weights.Take($"{module}.shift", count, 1, width);
    }

    /// <summary>The first layer of a network.</summary>
    public Linear<TVector> First<TVector>(int network)
        where TVector : struct, IVector<TVector> => Linear<TVector>.Of(
            Part(_first, network, _width * _width), Part(_firstBias, network, _width), _width, _width);

    /// <summary>The first layer of a network that reads columns through a linear embedding.</summary>
    /// <param name="network">The network.</param>
    /// <param name="embedding">[columns + 1, width], the last row is the bias.</param>
    public Linear<TVector> FirstOf<TVector>(int network, ReadOnlySpan<float> embedding)
        where TVector : struct, IVector<TVector>
    {
        var columns = (embedding.Length / _width) - 1;
        var product = Product(embedding, Part(_first, network, _width * _width), columns + 1, _width, _width);
        var bias = product[(columns * _width)..];
        for (var k = 0; k < _width; k++)
            bias[k] += Part(_firstBias, network, _width)[k];
        return Linear<TVector>.Of(product.AsSpan(0, columns * _width), bias, columns, _width);
    }

    /// <summary>The second layer and the gate's as one.</summary>
    public Linear<TVector> Gate<TVector>(int network)
        where TVector : struct, IVector<TVector>
    {
        var gate = Part(_gate, network, 2 * _width * _width);
        var product = Product(Part(_second, network, _width * _width), gate, _width, _width, 2 * _width);
        var bias = Product(Part(_secondBias, network, _width), gate, 1, _width, 2 * _width);
        for (var k = 0; k < 2 * _width; k++)
            bias[k] += Part(_gateBias, network, 2 * _width)[k];
        return Linear<TVector>.Of(product, bias, _width, _width, groups: 2);
    }

    /// <summary>The layer norm of a network.</summary>
    public LayerNorm<TVector> Norm<TVector>(int network)
        where TVector : struct, IVector<TVector> => new(Part(_gain, network, _width), Part(_shift, network, _width));

    /// <summary>The product of [rows, inner] and [inner, columns], summed in float64.</summary>
    public static float[] Product(ReadOnlySpan<float> left, ReadOnlySpan<float> right, int rows, int inner, int columns)
    {
        var result = new float[rows * columns];
        for (var row = 0; row < rows; row++)
        {
            for (var column = 0; column < columns; column++)
            {
                var sum = 0.0;
                for (var k = 0; k < inner; k++)
                    sum += (double)left[(row * inner) + k] * right[(k * columns) + column];
                result[(row * columns) + column] = (float)sum;
            }
        }
        return result;
    }

    private static ReadOnlySpan<float> Part(float[] values, int network, int length) => values.AsSpan(network * length, length);
}
