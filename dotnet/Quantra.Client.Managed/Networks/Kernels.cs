using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>
/// Products and norms of float32 matrices in one order of sums, which depends neither on the width of the vectors nor
/// on the number of rows.
/// </summary>
/// <remarks>
/// Rows of a matrix are padded with zeros to a multiple of <see cref="Padding"/> values. Each value of a product is one
/// chain of fused multiply-adds in the order of the inner axis. The hot methods are optimized at their first call: tiers
/// would leave the first hundred forecasts many times slower.
/// </remarks>
internal static class Kernels<TVector>
    where TVector : struct, IVector<TVector>
{
    /// <summary>Rows have a multiple of this length; sums within a row have this many lanes.</summary>
    public const int Padding = 16;

    /// <summary>Rounds a width up to a multiple of the padding.</summary>
    public static int Padded(int width) => (width + Padding - 1) / Padding * Padding;

    /// <summary>Adds x * weights to the result.</summary>
    /// <param name="x">[rows, depth], rows <paramref name="xStride"/> apart.</param>
    /// <param name="xStride">Distance of rows of x.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="depth">Length of the sums.</param>
    /// <param name="weights">[depth, width]</param>
    /// <param name="width">Columns, a multiple of the padding.</param>
    /// <param name="result">[rows, width], rows <paramref name="resultStride"/> apart.</param>
    /// <param name="resultStride">Distance of rows of the result.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void AddProduct(
        ref float x, int xStride, int rows, int depth, ref float weights, int width, ref float result, int resultStride)
    {
        var row = 0;
        for (; row + 4 <= rows; row += 4)
        {
            AddFourRows(
                ref Unsafe.Add(ref x, row * xStride), xStride, depth,
                ref weights, width, ref Unsafe.Add(ref result, row * resultStride), resultStride);
        }
        for (; row < rows; row++)
        {
            AddRow(
                ref Unsafe.Add(ref x, row * xStride), depth,
                ref weights, width, ref Unsafe.Add(ref result, row * resultStride));
        }
    }

    /// <summary>Sets every row of the result to the same values.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void FillRows(ref float values, int rows, int width, ref float result, int resultStride)
    {
        for (var row = 0; row < rows; row++)
            Copy(ref values, width, ref Unsafe.Add(ref result, row * resultStride));
    }

    /// <summary>Copies a padded row.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static void Copy(ref float source, int width, ref float destination)
    {
        for (nuint k = 0; k < (nuint)width; k += (nuint)TVector.Lanes)
            TVector.Load(ref source, k).Store(ref destination, k);
    }

    /// <summary>Layer norm of each row in place: population variance, epsilon inside the root.</summary>
    /// <param name="x">[rows, width]; padding becomes 0 if gain and shift are 0 there.</param>
    /// <param name="stride">Distance of rows, the padded width.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="width">Values of a row, without padding.</param>
    /// <param name="gain">[stride]</param>
    /// <param name="shift">[stride]</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Normalise(
        ref float x, int stride, int rows, int width, ref float gain, ref float shift)
    {
        Span<float> lanes = stackalloc float[Padding];
        Span<float> tail = stackalloc float[Padding];
        var whole = width / Padding * Padding;
        for (var k = 0; k < width - whole; k++)
            tail[k] = BitConverter.Int32BitsToSingle(-1);
        for (var row = 0; row < rows; row++)
        {
            ref var values = ref Unsafe.Add(ref x, row * stride);
            for (nuint lane = 0; lane < Padding; lane += (nuint)TVector.Lanes)
            {
                var sum = TVector.Of(0f);
                for (var k = lane; k < (nuint)stride; k += Padding)
                    sum += TVector.Load(ref values, k);
                sum.Store(ref lanes[0], lane);
            }
            var mean = TVector.Of(TVector.SumOf16(ref lanes[0]) / width);
            for (nuint lane = 0; lane < Padding; lane += (nuint)TVector.Lanes)
            {
                var sum = TVector.Of(0f);
                for (var k = lane; k < (nuint)whole; k += Padding)
                {
                    var off = TVector.Load(ref values, k) - mean;
                    sum = TVector.MultiplyAdd(off, off, sum);
                }
                if (whole < width)
                {
                    var off = TVector.And(TVector.Load(ref values, (nuint)whole + lane) - mean, TVector.Load(ref tail[0], lane));
                    sum = TVector.MultiplyAdd(off, off, sum);
                }
                sum.Store(ref lanes[0], lane);
            }
            var deviation = TVector.Of(MathF.Sqrt((TVector.SumOf16(ref lanes[0]) / width) + NetworkSettings.NormEpsilon));
            for (nuint k = 0; k < (nuint)stride; k += (nuint)TVector.Lanes)
            {
                var normed = (TVector.Load(ref values, k) - mean) / deviation;
                TVector.MultiplyAdd(normed, TVector.Load(ref gain, k), TVector.Load(ref shift, k)).Store(ref values, k);
            }
        }
    }

    /// <summary>ELU of each value in place.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Elu(ref float x, int length)
    {
        for (nuint k = 0; k < (nuint)length; k += (nuint)TVector.Lanes)
            Activations<TVector>.Elu(TVector.Load(ref x, k)).Store(ref x, k);
    }

    /// <summary>GELU of each value in place.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Gelu(ref float x, int length)
    {
        for (nuint k = 0; k < (nuint)length; k += (nuint)TVector.Lanes)
            Activations<TVector>.Gelu(TVector.Load(ref x, k)).Store(ref x, k);
    }

    /// <summary>Adds values to others.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Add(ref float x, int length, ref float result)
    {
        for (nuint k = 0; k < (nuint)length; k += (nuint)TVector.Lanes)
            (TVector.Load(ref result, k) + TVector.Load(ref x, k)).Store(ref result, k);
    }

    /// <summary>Subtracts values from others.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Subtract(ref float x, int length, ref float result)
    {
        for (nuint k = 0; k < (nuint)length; k += (nuint)TVector.Lanes)
            (TVector.Load(ref result, k) - TVector.Load(ref x, k)).Store(ref result, k);
    }

    /// <summary>Divides each value in place.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Divide(ref float x, int length, float divisor)
    {
        for (nuint k = 0; k < (nuint)length; k += (nuint)TVector.Lanes)
            (TVector.Load(ref x, k) / TVector.Of(divisor)).Store(ref x, k);
    }

    /// <summary>Adds value * sigmoid(gate) to the result, where a row of gates holds first the values, then the gates.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void AddGated(ref float gates, int rows, int width, ref float result)
    {
        for (var row = 0; row < rows; row++)
        {
            for (nuint k = 0; k < (nuint)width; k += (nuint)TVector.Lanes)
            {
                var gated = Activations<TVector>.Gated(TVector.Load(ref gates, (nuint)width + k), TVector.Load(ref gates, k));
                (TVector.Load(ref result, k) + gated).Store(ref result, k);
            }
            gates = ref Unsafe.Add(ref gates, 2 * width);
            result = ref Unsafe.Add(ref result, width);
        }
    }

    /// <summary>Adds a row for each window to rows of sessions, session first.</summary>
    /// <param name="x">[rows, width]</param>
    /// <param name="width">Padded width.</param>
    /// <param name="first">Number of the first row among all rows of sessions.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="windowRows">[windows, width]</param>
    /// <param name="windows">Number of windows.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void AddOfWindows(ref float x, int width, int first, int rows, ref float windowRows, int windows)
    {
        for (var row = 0; row < rows; row++)
        {
            ref var added = ref Unsafe.Add(ref windowRows, (first + row) % windows * width);
            for (nuint k = 0; k < (nuint)width; k += (nuint)TVector.Lanes)
                (TVector.Load(ref x, k) + TVector.Load(ref added, k)).Store(ref x, k);
            x = ref Unsafe.Add(ref x, width);
        }
    }

    /// <summary>Adds each row times a number of its own to the result.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void AddScaled(ref float x, int rows, int width, ref float shares, int shareStride, ref float result)
    {
        for (var row = 0; row < rows; row++)
        {
            var share = TVector.Of(shares);
            for (nuint k = 0; k < (nuint)width; k += (nuint)TVector.Lanes)
                TVector.MultiplyAdd(share, TVector.Load(ref x, k), TVector.Load(ref result, k)).Store(ref result, k);
            x = ref Unsafe.Add(ref x, width);
            result = ref Unsafe.Add(ref result, width);
            shares = ref Unsafe.Add(ref shares, shareStride);
        }
    }

    /// <summary>Softmax of the first values of each row in place; the others become 0.</summary>
    /// <param name="x">[rows, stride]</param>
    /// <param name="stride">Padded width.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="width">Values of a row.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Softmax(ref float x, int stride, int rows, int width)
    {
        Span<float> lanes = stackalloc float[Padding];
        for (var row = 0; row < rows; row++)
        {
            var largest = x;
            for (var k = 1; k < width; k++)
                largest = Math.Max(largest, Unsafe.Add(ref x, k));
            var most = TVector.Of(largest);
            for (nuint k = 0; k < (nuint)width; k += (nuint)TVector.Lanes)
                Activations<TVector>.Exp(TVector.Load(ref x, k) - most).Store(ref x, k);
            for (var k = width; k < stride; k++)
                Unsafe.Add(ref x, k) = 0f;
            for (nuint lane = 0; lane < Padding; lane += (nuint)TVector.Lanes)
            {
                var sum = TVector.Of(0f);
                for (var k = lane; k < (nuint)stride; k += Padding)
                    sum += TVector.Load(ref x, k);
                sum.Store(ref lanes[0], lane);
            }
            var total = TVector.Of(TVector.SumOf16(ref lanes[0]));
            for (nuint k = 0; k < (nuint)stride; k += (nuint)TVector.Lanes)
                (TVector.Load(ref x, k) / total).Store(ref x, k);
            x = ref Unsafe.Add(ref x, stride);
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddFourRows(
        ref float x, int xStride, int depth, ref float weights, int width, ref float result, int resultStride)
    {
        ref var x1 = ref Unsafe.Add(ref x, xStride);
        ref var x2 = ref Unsafe.Add(ref x1, xStride);
        ref var x3 = ref Unsafe.Add(ref x2, xStride);
        ref var r1 = ref Unsafe.Add(ref result, resultStride);
        ref var r2 = ref Unsafe.Add(ref r1, resultStride);
        ref var r3 = ref Unsafe.Add(ref r2, resultStride);
        nuint lanes = (nuint)TVector.Lanes, column = 0, columns = (nuint)width;
        for (; column + (2 * lanes) <= columns; column += 2 * lanes)
        {
            var next = column + lanes;
            TVector a0 = TVector.Load(ref result, column), b0 = TVector.Load(ref result, next);
            TVector a1 = TVector.Load(ref r1, column), b1 = TVector.Load(ref r1, next);
            TVector a2 = TVector.Load(ref r2, column), b2 = TVector.Load(ref r2, next);
            TVector a3 = TVector.Load(ref r3, column), b3 = TVector.Load(ref r3, next);
            var place = column;
            for (nuint k = 0; k < (nuint)depth; k++, place += columns)
            {
                TVector a = TVector.Load(ref weights, place), b = TVector.Load(ref weights, place + lanes);
                var v = TVector.Of(Unsafe.Add(ref x, k));
                a0 = TVector.MultiplyAdd(v, a, a0);
                b0 = TVector.MultiplyAdd(v, b, b0);
                v = TVector.Of(Unsafe.Add(ref x1, k));
                a1 = TVector.MultiplyAdd(v, a, a1);
                b1 = TVector.MultiplyAdd(v, b, b1);
                v = TVector.Of(Unsafe.Add(ref x2, k));
                a2 = TVector.MultiplyAdd(v, a, a2);
                b2 = TVector.MultiplyAdd(v, b, b2);
                v = TVector.Of(Unsafe.Add(ref x3, k));
                a3 = TVector.MultiplyAdd(v, a, a3);
                b3 = TVector.MultiplyAdd(v, b, b3);
            }
            a0.Store(ref result, column);
            b0.Store(ref result, next);
            a1.Store(ref r1, column);
            b1.Store(ref r1, next);
            a2.Store(ref r2, column);
            b2.Store(ref r2, next);
            a3.Store(ref r3, column);
            b3.Store(ref r3, next);
        }
        for (; column < columns; column += lanes)
        {
            TVector a0 = TVector.Load(ref result, column), a1 = TVector.Load(ref r1, column);
            TVector a2 = TVector.Load(ref r2, column), a3 = TVector.Load(ref r3, column);
            var place = column;
            for (nuint k = 0; k < (nuint)depth; k++, place += columns)
            {
                var a = TVector.Load(ref weights, place);
                a0 = TVector.MultiplyAdd(TVector.Of(Unsafe.Add(ref x, k)), a, a0);
                a1 = TVector.MultiplyAdd(TVector.Of(Unsafe.Add(ref x1, k)), a, a1);
                a2 = TVector.MultiplyAdd(TVector.Of(Unsafe.Add(ref x2, k)), a, a2);
                a3 = TVector.MultiplyAdd(TVector.Of(Unsafe.Add(ref x3, k)), a, a3);
            }
            a0.Store(ref result, column);
            a1.Store(ref r1, column);
            a2.Store(ref r2, column);
            a3.Store(ref r3, column);
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddRow(ref float x, int depth, ref float weights, int width, ref float result)
    {
        nuint lanes = (nuint)TVector.Lanes, column = 0, columns = (nuint)width;
        for (; column + (8 * lanes) <= columns; column += 8 * lanes)
        {
            ref var at = ref Unsafe.Add(ref result, column);
            TVector a0 = TVector.Load(ref at, 0), a1 = TVector.Load(ref at, lanes);
            TVector a2 = TVector.Load(ref at, 2 * lanes), a3 = TVector.Load(ref at, 3 * lanes);
            TVector a4 = TVector.Load(ref at, 4 * lanes), a5 = TVector.Load(ref at, 5 * lanes);
            TVector a6 = TVector.Load(ref at, 6 * lanes), a7 = TVector.Load(ref at, 7 * lanes);
            ref var w = ref Unsafe.Add(ref weights, column);
            for (nuint k = 0; k < (nuint)depth; k++)
            {
                var v = TVector.Of(Unsafe.Add(ref x, k));
                a0 = TVector.MultiplyAdd(v, TVector.Load(ref w, 0), a0);
                a1 = TVector.MultiplyAdd(v, TVector.Load(ref w, lanes), a1);
                a2 = TVector.MultiplyAdd(v, TVector.Load(ref w, 2 * lanes), a2);
                a3 = TVector.MultiplyAdd(v, TVector.Load(ref w, 3 * lanes), a3);
                a4 = TVector.MultiplyAdd(v, TVector.Load(ref w, 4 * lanes), a4);
                a5 = TVector.MultiplyAdd(v, TVector.Load(ref w, 5 * lanes), a5);
                a6 = TVector.MultiplyAdd(v, TVector.Load(ref w, 6 * lanes), a6);
                a7 = TVector.MultiplyAdd(v, TVector.Load(ref w, 7 * lanes), a7);
                w = ref Unsafe.Add(ref w, columns);
            }
            a0.Store(ref at, 0);
            a1.Store(ref at, lanes);
            a2.Store(ref at, 2 * lanes);
            a3.Store(ref at, 3 * lanes);
            a4.Store(ref at, 4 * lanes);
            a5.Store(ref at, 5 * lanes);
            a6.Store(ref at, 6 * lanes);
            a7.Store(ref at, 7 * lanes);
        }
        for (; column + (2 * lanes) <= columns; column += 2 * lanes)
        {
            TVector a = TVector.Load(ref result, column), b = TVector.Load(ref result, column + lanes);
            var place = column;
            for (nuint k = 0; k < (nuint)depth; k++, place += columns)
            {
                var v = TVector.Of(Unsafe.Add(ref x, k));
                a = TVector.MultiplyAdd(v, TVector.Load(ref weights, place), a);
                b = TVector.MultiplyAdd(v, TVector.Load(ref weights, place + lanes), b);
            }
            a.Store(ref result, column);
            b.Store(ref result, column + lanes);
        }
        for (; column < columns; column += lanes)
        {
            var a = TVector.Load(ref result, column);
            var place = column;
            for (nuint k = 0; k < (nuint)depth; k++, place += columns)
                a = TVector.MultiplyAdd(TVector.Of(Unsafe.Add(ref x, k)), TVector.Load(ref weights, place), a);
            a.Store(ref result, column);
        }
    }
}
