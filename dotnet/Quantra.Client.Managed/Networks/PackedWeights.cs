namespace Quantra.Client.Managed;

/// <summary>Weights in the layout of the kernels: [inputs, outputs], rows padded with zeros.</summary>
internal static class PackedWeights
{
    /// <summary>Pads each row of [rows, columns].</summary>
    public static FloatBuffer Rows(ReadOnlySpan<float> values, int rows, int columns, int padded)
    {
        var packed = new FloatBuffer(rows * padded);
        for (var row = 0; row < rows; row++)
            values.Slice(row * columns, columns).CopyTo(packed.Span[(row * padded)..]);
        return packed;
    }

    /// <summary>Transposes some columns of a torch linear layer [outputs, inputs], whose outputs are in groups.</summary>
    /// <param name="values">[groups * outputs, inputs]</param>
    /// <param name="inputs">Columns of the layer.</param>
    /// <param name="first">First column to take.</param>
    /// <param name="count">Columns to take.</param>
    /// <param name="groups">Groups of outputs, each padded, such as gates.</param>
    /// <param name="outputs">Outputs of a group.</param>
    /// <param name="padded">Padded outputs of a group.</param>
    /// <returns>[count, groups * padded]</returns>
    public static FloatBuffer Transposed(
        ReadOnlySpan<float> values, int inputs, int first, int count, int groups, int outputs, int padded)
    {
        var packed = new FloatBuffer(count * groups * padded);
        var target = packed.Span;
        for (var group = 0; group < groups; group++)
        {
            for (var output = 0; output < outputs; output++)
            {
                var row = values.Slice((((group * outputs) + output) * inputs) + first, count);
                for (var k = 0; k < count; k++)
                    target[(k * groups * padded) + (group * padded) + output] = row[k];
            }
        }
        return packed;
    }

    /// <summary>Pads each group of a bias [groups * outputs].</summary>
    public static FloatBuffer Bias(ReadOnlySpan<float> values, int groups, int outputs, int padded) =>
        Rows(values, groups, outputs, padded);
}
