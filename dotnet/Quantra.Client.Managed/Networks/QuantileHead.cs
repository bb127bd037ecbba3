namespace Quantra.Client.Managed;

/// <summary>Quantiles of each horizon from its context: the level nearest to 0.5, plus or minus sums of softplus steps.</summary>
internal sealed class QuantileHead<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly int _anchor;
    private readonly int _levels;
    private readonly int _padded;
    private readonly int _width;
    private readonly FloatBuffer[] _weights;
    private readonly FloatBuffer[] _biases;

    /// <summary>Reads the head's weights.</summary>
    /// <param name="weights">The network's weights.</param>
    /// <param name="width">Width of the context.</param>
    /// <param name="horizons">Number of horizons.</param>
    /// <param name="levels">Quantile levels, ascending.</param>
    public QuantileHead(NetworkWeights weights, int width, int horizons, double[] levels)
    {
        (_width, _levels) = (width, levels.Length);
        _anchor = AnchorOf(levels);
        _padded = Kernels<TVector>.Padded(_levels);
        var weight = weights.Take("head.weight", horizons, width, _levels);
        var bias = weights.Take("head.bias", horizons, _levels);
        _weights = new FloatBuffer[horizons];
        _biases = new FloatBuffer[horizons];
        for (var horizon = 0; horizon < horizons; horizon++)
        {
            _weights[horizon] = PackedWeights.Rows(weight.AsSpan(horizon * width * _levels, width * _levels), width, _levels, _padded);
            _biases[horizon] = PackedWeights.Rows(bias.AsSpan(horizon * _levels, _levels), 1, _levels, _padded);
        }
    }

    /// <summary>Number of levels (Q).</summary>
    public int Levels => _levels;

    /// <summary>Index of the level nearest to the median; the other quantiles are steps away from it.</summary>
    public static int AnchorOf(ReadOnlySpan<double> levels)
    {
        var anchor = 0;
        for (var k = 1; k < levels.Length; k++)
        {
            if (Math.Abs(levels[k] - 0.5) < Math.Abs(levels[anchor] - 0.5))
                anchor = k;
        }
        return anchor;
    }

    /// <summary>Values that <see cref="Run"/> needs in its scratch memory.</summary>
    /// <param name="rows">Number of rows.</param>
    public int Scratch(int rows) => rows * _padded;

    /// <summary>Computes the quantiles of one horizon.</summary>
    /// <param name="context">[rows, stride]</param>
    /// <param name="stride">Distance of the context's rows.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="horizon">Index of the horizon.</param>
    /// <param name="scratch">Memory of <see cref="Scratch"/> values.</param>
    /// <param name="highway">A term for each row, added to its quantiles; empty for none.</param>
    /// <param name="units">[rows, H, Q] of all horizons.</param>
    public void Run(
        ref float context, int stride, int rows, int horizon, FloatBuffer scratch, ReadOnlySpan<float> highway, Span<double> units)
    {
        Kernels<TVector>.FillRows(ref _biases[horizon].First, rows, _padded, ref scratch.First, _padded);
        Kernels<TVector>.AddProduct(
            ref context, stride, rows, _width, ref _weights[horizon].First, _padded, ref scratch.First, _padded);
        for (var row = 0; row < rows; row++)
        {
            var quantiles = units.Slice(((row * _weights.Length) + horizon) * _levels, _levels);
            Rise(scratch.Span.Slice(row * _padded, _levels), _anchor, quantiles);
            for (var k = 0; k < _levels && !highway.IsEmpty; k++)
                quantiles[k] = (float)quantiles[k] + highway[row];
        }
    }

    /// <summary>Computes the anchor and the steps before softplus of one horizon on a tape.</summary>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix context, int horizon)
    {
        var result = tape.Add(context.Rows, _padded);
        tape.Fill(result, _biases[horizon]);
        tape.AddProduct(context, 0, _width, _weights[horizon], result);
        return result;
    }

    /// <summary>As <see cref="Rise(ReadOnlySpan{float}, int, Span{double})"/>, for the levels of this head.</summary>
    public void Rise(ReadOnlySpan<float> raw, Span<double> quantiles) => Rise(raw[.._levels], _anchor, quantiles);

    /// <summary>Computes the gradient of the numbers before <see cref="Rise(ReadOnlySpan{float}, Span{double})"/>.</summary>
    public void ReverseRise(ReadOnlySpan<float> raw, ReadOnlySpan<double> quantiles, Span<float> gradient)
    {
        double above = 0, below = 0;
        for (var k = _levels - 1; k > _anchor; k--)
            gradient[k] = (float)((above += quantiles[k]) * Softplus.Slope(raw[k]));
        for (var k = 0; k < _anchor; k++)
            gradient[k] = (float)(-(below += quantiles[k]) * Softplus.Slope(raw[k]));
        gradient[_anchor] = (float)(above + below + quantiles[_anchor]);
    }

    /// <summary>Converts an anchor and the steps before softplus to quantiles, in float64 with one rounding to float32.</summary>
    public static void Rise(ReadOnlySpan<float> raw, int anchor, Span<double> quantiles)
    {
        quantiles[anchor] = raw[anchor];
        double above = raw[anchor], below = raw[anchor];
        for (var k = anchor + 1; k < raw.Length; k++)
            quantiles[k] = (float)(above += Softplus.Of(raw[k]));
        for (var k = anchor - 1; k >= 0; k--)
            quantiles[k] = (float)(below -= Softplus.Of(raw[k]));
    }
}
