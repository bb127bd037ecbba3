using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>The rows of sessions that networks read: observed features, known features, share of known cells.</summary>
internal static class SessionRows
{
    /// <summary>Windows of one block; more would not stay in the processor's cache.</summary>
    public const int RowsAtOnce = 32;

    /// <summary>Padded width of a row.</summary>
    public static int Stride(InputSizes sizes) => (sizes.RowWidth + 15) / 16 * 16;

    /// <summary>Writes the rows of a block of windows, session first.</summary>
    /// <param name="inputs">The windows.</param>
    /// <param name="sizes">Sizes of the inputs.</param>
    /// <param name="first">The first window.</param>
    /// <param name="rows">Number of windows.</param>
    /// <param name="result">[sessions, rows, stride]</param>
    /// <param name="stride">Distance of rows.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Write(NetworkInputs inputs, InputSizes sizes, int first, int rows, Span<float> result, int stride)
    {
        int observed = sizes.Observed, known = sizes.Known;
        var knownLength = (sizes.EncoderLength + sizes.FutureLength) * known;
        for (var row = 0; row < rows; row++)
        {
            var own = result[(row * stride)..];
            var mask = inputs.MaskOf(first + row);
            Spread(inputs.ObservedOf(first + row), observed, own, rows * stride);
            Spread(inputs.KnownOf(first + row, knownLength)[..(sizes.EncoderLength * known)], known, own[observed..], rows * stride);
            for (var session = 0; session < sizes.EncoderLength; session++)
                own[(session * rows * stride) + observed + known] = (float)mask.Slice(session * observed, observed).Count(true) / observed;
        }
    }

    /// <summary>Copies rows that follow each other to rows that are some distance apart.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Spread(ReadOnlySpan<float> rows, int width, Span<float> result, int stride)
    {
        for (var row = 0; row * width < rows.Length; row++)
            rows.Slice(row * width, width).CopyTo(result[(row * stride)..]);
    }
}
