namespace Quantra.Client.Managed;

/// <summary>A linear map of all values of a sequence.</summary>
internal sealed class SequenceLinear<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly int _inputs;

    /// <param name="weight">[outputs, steps * inputs]</param>
    /// <param name="outputs">Width of the result.</param>
    /// <param name="steps">Length of the sequence.</param>
    /// <param name="inputs">Values of each step.</param>
    public SequenceLinear(ReadOnlySpan<float> weight, int outputs, int steps, int inputs)
    {
        (_inputs, Width, Steps) = (inputs, Kernels<TVector>.Padded(outputs), new FloatBuffer[steps]);
        for (var k = 0; k < steps; k++)
            Steps[k] = PackedWeights.Transposed(weight, steps * inputs, k * inputs, inputs, 1, outputs, Width);
    }

    /// <summary>Padded width of the result.</summary>
    public int Width { get; }

    /// <summary>[inputs, Width] weights of each step.</summary>
    public FloatBuffer[] Steps { get; }

    /// <summary>Computes the map on a tape.</summary>
    /// <param name="tape">The tape.</param>
    /// <param name="sequence">[steps, rows, width] whose first columns are the values.</param>
    /// <param name="bias">[Width]; null = 0.</param>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix sequence, FloatBuffer? bias = null)
    {
        var rows = sequence.Rows / Steps.Length;
        var result = tape.Add(rows, Width);
        if (bias is not null)
            tape.Fill(result, bias);
        for (var k = 0; k < Steps.Length; k++)
            tape.AddProduct(sequence.Slice(k * rows, rows), 0, _inputs, Steps[k], result);
        return result;
    }
}
