using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>
/// Embeds each variable, passes it through its own gated residual network and returns a weighted sum (section 4.2 of Lim
/// et al. 2021). Layers that read an embedding are multiplied by it once, when the weights are read.
/// </summary>
internal sealed class VariableSelection<TVector>
    where TVector : struct, IVector<TVector>
{
    /// <summary>Rows that are computed at once, so that all intermediate results stay in the fastest cache.</summary>
    private const int RowsAtOnce = 64;

    private readonly int[] _starts;
    private readonly int _count;
    private readonly int _weightWidth;
    private readonly Linear<TVector> _first;
    private readonly Linear<TVector> _skip;
    private readonly GatedRest<TVector> _rest;
    private readonly Linear<TVector>[] _eachEmbedding;
    private readonly Linear<TVector>[] _eachFirst;
    private readonly Linear<TVector>[] _eachGate;
    private readonly LayerNorm<TVector>[] _eachNorm;

    /// <summary>Reads the weights.</summary>
    /// <param name="weights">The network's weights.</param>
    /// <param name="module">Name of the module.</param>
    /// <param name="widths">Columns of each variable.</param>
    /// <param name="width">Width of the embeddings and of the result.</param>
    /// <param name="context">Whether static features influence the weights.</param>
    public VariableSelection(NetworkWeights weights, string module, int[] widths, int width, bool context)
    {
        _count = widths.Length;
        Width = Kernels<TVector>.Padded(width);
        _weightWidth = Kernels<TVector>.Padded(_count);
        _starts = [.. widths.Select((_, k) => widths.Take(k).Sum())];
        var rows = widths.Max() + 1;
        var embedding = weights.Take($"{module}.embedding", _count, rows, width);
        var joint = weights.Take($"{module}.joint", _count, width, width + _count);
        var bias = weights.Take($"{module}.joint_bias", width + _count);
        (_first, _skip) = Joint(widths, width, embedding, joint, bias);
        _rest = new GatedRest<TVector>(weights, $"{module}.rest", width, _count, context);
        var each = new GatedResidualWeights(weights, $"{module}.each", _count, width);
        float[][] own = [.. Enumerable.Range(0, _count).Select(k => SelectOwnRows(embedding.AsSpan(k * rows * width, rows * width), widths[k], width))];
        _eachEmbedding = [.. own.Select((one, k) => Linear<TVector>.Of(one.AsSpan(0, widths[k] * width), one.AsSpan(widths[k] * width), widths[k], width))];
        _eachFirst = [.. own.Select((one, k) => each.FirstOf<TVector>(k, one))];
        _eachGate = [.. own.Select((_, k) => each.Gate<TVector>(k))];
        _eachNorm = [.. own.Select((_, k) => each.Norm<TVector>(k))];
    }

    /// <summary>Padded width of the result.</summary>
    public int Width { get; }

    /// <summary>Values of scratch memory.</summary>
    public int Scratch => RowsAtOnce * (_weightWidth + (4 * Width) + _rest.RowScratch);

    /// <summary>As <see cref="GatedRest{TVector}.MapContext"/>.</summary>
    public void MapContext(ref float contexts, int windows, ref float result) => _rest.MapContext(ref contexts, windows, ref result);

    /// <summary>Selects the variables of all rows.</summary>
    /// <param name="x">[rows, stride] columns of the variables.</param>
    /// <param name="stride">Distance of rows of x.</param>
    /// <param name="rows">Number of rows, session first.</param>
    /// <param name="contexts">[windows, Width] from <see cref="MapContext"/>.</param>
    /// <param name="windows">Number of windows; 0 without a context.</param>
    /// <param name="scratch">Memory of Scratch values.</param>
    /// <param name="result">[rows, Width]</param>
    public void Run(
        ref float x, int stride, int rows, ref float contexts, int windows, ref float scratch, ref float result)
    {
        for (var start = 0; start < rows; start += RowsAtOnce)
        {
            var count = Math.Min(RowsAtOnce, rows - start);
            RunRows(
                ref Unsafe.Add(ref x, start * stride), stride, start, count,
                ref contexts, windows, ref scratch, ref Unsafe.Add(ref result, start * Width));
        }
    }

    /// <summary>Selects the variables of all rows on a tape.</summary>
    /// <returns>The selection, and the weights of the variables.</returns>
    public (TapeMatrix Selected, TapeMatrix Weights) Record(Tape<TVector> tape, TapeMatrix x, TapeMatrix? context)
    {
        var weights = _rest.Record(tape, _first.Record(tape, x), context, _skip.Record(tape, x));
        tape.Softmax(weights, _count);
        var result = tape.Add(x.Rows, Width);
        for (var variable = 0; variable < _count; variable++)
        {
            var hidden = _eachFirst[variable].Record(tape, x, _starts[variable]);
            tape.Elu(hidden);
            var sum = tape.AddGated(_eachGate[variable].Record(tape, hidden), _eachEmbedding[variable].Record(tape, x, _starts[variable]));
            tape.AddScaled(_eachNorm[variable].Record(tape, sum), weights, variable, result);
        }
        return (result, weights);
    }

    private void RunRows(
        ref float x, int stride, int start, int rows, ref float contexts, int windows, ref float scratch, ref float result)
    {
        ref var weights = ref scratch;
        ref var hidden = ref Unsafe.Add(ref scratch, rows * _weightWidth);
        ref var sum = ref Unsafe.Add(ref hidden, rows * Width);
        ref var gates = ref Unsafe.Add(ref sum, rows * Width);
        _first.Run(ref x, stride, rows, ref hidden);
        _skip.Run(ref x, stride, rows, ref weights);
        _rest.Run(ref hidden, start, rows, ref contexts, windows, ref gates, ref weights);
        Kernels<TVector>.Softmax(ref weights, _weightWidth, rows, _count);
        System.Runtime.InteropServices.MemoryMarshal.CreateSpan(ref result, rows * Width).Clear();
        for (var variable = 0; variable < _count; variable++)
        {
            ref var columns = ref Unsafe.Add(ref x, _starts[variable]);
            _eachFirst[variable].Run(ref columns, stride, rows, ref hidden);
            Kernels<TVector>.Elu(ref hidden, rows * Width);
            _eachGate[variable].Run(ref hidden, Width, rows, ref gates);
            _eachEmbedding[variable].Run(ref columns, stride, rows, ref sum);
            Kernels<TVector>.AddGated(ref gates, rows, Width, ref sum);
            _eachNorm[variable].Run(ref sum, rows);
            Kernels<TVector>.AddScaled(ref sum, rows, Width, ref Unsafe.Add(ref weights, variable), _weightWidth, ref result);
        }
    }

    /// <summary>The rows of a variable's own columns and, last, its bias.</summary>
    private static float[] SelectOwnRows(ReadOnlySpan<float> embedding, int columns, int width) =>
        [.. embedding[..(columns * width)], .. embedding[^width..]];

    /// <summary>The two layers that read all embeddings, as layers that read the columns (equation 6).</summary>
    private (Linear<TVector> First, Linear<TVector> Skip) Joint(
        int[] widths, int width, float[] embedding, float[] joint, float[] bias)
    {
        int columns = widths.Sum(), outputs = width + _count, rows = widths.Max() + 1;
        float[] first = new float[columns * width], skip = new float[columns * _count];
        var sums = Array.ConvertAll(bias, value => (double)value);
        for (var variable = 0; variable < _count; variable++)
        {
            var product = GatedResidualWeights.Product(
                embedding.AsSpan(variable * rows * width, rows * width), joint.AsSpan(variable * width * outputs, width * outputs),
                rows, width, outputs);
            for (var k = 0; k < outputs; k++)
                sums[k] += product[((rows - 1) * outputs) + k];
            for (var column = 0; column < widths[variable]; column++)
            {
                var row = product.AsSpan(column * outputs, outputs);
                row[..width].CopyTo(first.AsSpan((_starts[variable] + column) * width));
                row[width..].CopyTo(skip.AsSpan((_starts[variable] + column) * _count));
            }
        }
        var biases = Array.ConvertAll(sums, value => (float)value);
        return (
            Linear<TVector>.Of(first, biases.AsSpan(0, width), columns, width),
            Linear<TVector>.Of(skip, biases.AsSpan(width), columns, _count));
    }
}
