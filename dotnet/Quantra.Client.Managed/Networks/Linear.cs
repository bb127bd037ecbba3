namespace Quantra.Client.Managed;

/// <summary>A linear layer with packed weights.</summary>
internal sealed class Linear<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly int _inputs;
    private readonly FloatBuffer _weights;
    private readonly FloatBuffer? _bias;

    private Linear(int inputs, int width, FloatBuffer weights, FloatBuffer? bias) =>
        (_inputs, Width, _weights, _bias) = (inputs, width, weights, bias);

    /// <summary>Padded width of the result.</summary>
    public int Width { get; }

    /// <summary>Reads a layer of torch.</summary>
    /// <param name="weights">The network's weights.</param>
    /// <param name="module">Name of the layer.</param>
    /// <param name="inputs">Width of x.</param>
    /// <param name="outputs">Width of a group of outputs.</param>
    /// <param name="groups">Groups of outputs, each padded.</param>
    /// <param name="bias">Whether it has a bias.</param>
    public static Linear<TVector> Read(NetworkWeights weights, string module, int inputs, int outputs, int groups = 1, bool bias = true)
    {
        var names = ($"{module}.weight", bias ? $"{module}.bias" : null);
        return Read(weights, names, inputs, outputs, groups);
    }

    /// <summary>Reads a layer of torch by the names of its weight and its bias, which may be null.</summary>
    public static Linear<TVector> Read(NetworkWeights weights, (string Weight, string? Bias) names, int inputs, int outputs, int groups)
    {
        var padded = Kernels<TVector>.Padded(outputs);
        var matrix = weights.Take(names.Weight, groups * outputs, inputs);
        return new Linear<TVector>(
            inputs,
            groups * padded,
            PackedWeights.Transposed(matrix, inputs, 0, inputs, groups, outputs, padded),
            names.Bias is null ? null : PackedWeights.Rows(weights.Take(names.Bias, groups * outputs), groups, outputs, padded));
    }

    /// <summary>Makes a layer of weights [inputs, groups * outputs] in the order of a batched product.</summary>
    public static Linear<TVector> Of(
        ReadOnlySpan<float> matrix, ReadOnlySpan<float> bias, int inputs, int outputs, int groups = 1)
    {
        var padded = Kernels<TVector>.Padded(outputs);
        return new Linear<TVector>(
            inputs,
            groups * padded,
            PackedWeights.Rows(matrix, inputs * groups, outputs, padded),
            PackedWeights.Rows(bias, groups, outputs, padded));
    }

    /// <summary>Computes x * weights + bias.</summary>
    /// <param name="x">[rows, stride]</param>
    /// <param name="stride">Distance of rows of x.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="result">[rows, Width]</param>
    public void Run(ref float x, int stride, int rows, ref float result)
    {
        if (_bias is null)
            System.Runtime.InteropServices.MemoryMarshal.CreateSpan(ref result, rows * Width).Clear();
        else
            Kernels<TVector>.FillRows(ref _bias.First, rows, Width, ref result, Width);
        Kernels<TVector>.AddProduct(ref x, stride, rows, _inputs, ref _weights.First, Width, ref result, Width);
    }

    /// <summary>Computes the layer of some columns on a tape.</summary>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix x, int column = 0)
    {
        var result = tape.Add(x.Rows, Width);
        if (_bias is not null)
            tape.Fill(result, _bias);
        tape.AddProduct(x, column, _inputs, _weights, result);
        return result;
    }
}

/// <summary>Layer norm with gain and shift.</summary>
internal sealed class LayerNorm<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly int _width;
    private readonly int _padded;
    private readonly FloatBuffer _gain;
    private readonly FloatBuffer _shift;

    public LayerNorm(ReadOnlySpan<float> gain, ReadOnlySpan<float> shift)
    {
        (_width, _padded) = (gain.Length, Kernels<TVector>.Padded(gain.Length));
        _gain = PackedWeights.Rows(gain, 1, _width, _padded);
        _shift = PackedWeights.Rows(shift, 1, _width, _padded);
    }

    public static LayerNorm<TVector> Read(NetworkWeights weights, string module, int width) =>
        new(weights.Take($"{module}.weight", width), weights.Take($"{module}.bias", width));

    /// <summary>Normalises rows of the padded width in place.</summary>
    public void Run(ref float x, int rows) =>
        Kernels<TVector>.Normalise(ref x, _padded, rows, _width, ref _gain.First, ref _shift.First);

    /// <summary>Normalises rows on a tape.</summary>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix x) => tape.Normalise(x, _width, _gain, _shift);
}
