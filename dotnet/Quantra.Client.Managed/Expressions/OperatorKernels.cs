using System.Numerics;
using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>The operators' arithmetic in float64, defined to the last bit.</summary>
/// <remarks>
/// A sum adds from the oldest to the youngest value of a window, with one accumulator and without fused multiply-add. A
/// mean is the sum divided by n; a deviation takes a second pass over the window. NaN anywhere in a window gives NaN.
/// Only Log may differ in its last bit between machines. The lanes of a vector are windows, so that its width does not
/// matter. Series have <see cref="Slack"/> values of memory after their last row, which vectors may read and write.
/// </remarks>
internal static class OperatorKernels
{
    /// <summary>Values after the last row of each series.</summary>
    public const int Slack = 32;

    private const double RelativeEpsilon = 1e-9;

    private static nuint Lanes => (nuint)Vector<double>.Count;

    /// <summary>Computes an element-wise operation of two series.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Combine(Arithmetic arithmetic, ref double x, ref double y, int rows, ref double result)
    {
        for (nuint t = 0; t < (nuint)rows; t += Lanes)
        {
            Vector<double> a = Vector.LoadUnsafe(ref x, t), b = Vector.LoadUnsafe(ref y, t);
            Vector<double> value = arithmetic switch
            {
                Arithmetic.Add => a + b,
                Arithmetic.Subtract => a - b,
                Arithmetic.Multiply => a * b,
                Arithmetic.Divide => a / b,
                Arithmetic.IsGreater => IsGreater(a, b),
                Arithmetic.IsLess => IsGreater(b, a),
                Arithmetic.Greater => Larger(a, b),
                _ => Smaller(a, b),
            };
            value.StoreUnsafe(ref result, t);
        }
    }

    /// <summary>Computes an operator without a window.</summary>
    /// <param name="arithmetic">The operator.</param>
    /// <param name="x">The series.</param>
    /// <param name="number">The constant of Plus.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="result">The result.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Map(Arithmetic arithmetic, ref double x, double number, int rows, ref double result)
    {
        if (arithmetic == Arithmetic.Log)
        {
            for (var t = 0; t < rows; t++)
                Unsafe.Add(ref result, t) = Math.Log(Unsafe.Add(ref x, t));
            return;
        }
        for (nuint t = 0; t < (nuint)rows; t += Lanes)
        {
            var a = Vector.LoadUnsafe(ref x, t);
            Vector<double> value = arithmetic switch
            {
                Arithmetic.Negate => -a,
                Arithmetic.Abs => Vector.Abs(a),
                Arithmetic.Sqrt => Vector.SquareRoot(a),
                Arithmetic.Plus => a + new Vector<double>(number),
                _ => Sign(a),
            };
            value.StoreUnsafe(ref result, t);
        }
    }

    /// <summary>x minus x n bars ago; the first row of the result is row n of x.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Delta(ref double x, int n, int rows, ref double result)
    {
        for (nuint t = 0; t < (nuint)rows; t += Lanes)
            (Vector.LoadUnsafe(ref x, t + (nuint)n) - Vector.LoadUnsafe(ref x, t)).StoreUnsafe(ref result, t);
    }

    /// <summary>The sum of each window of n values, divided by a number.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Sum(ref double x, int n, double divisor, int rows, ref double result)
    {
        var below = new Vector<double>(divisor);
        nuint lanes = Lanes, t = 0;
        for (; t + (3 * lanes) < (nuint)rows; t += 4 * lanes)
        {
            Vector<double> a = Vector.LoadUnsafe(ref x, t), b = Vector.LoadUnsafe(ref x, t + lanes);
            Vector<double> c = Vector.LoadUnsafe(ref x, t + (2 * lanes)), d = Vector.LoadUnsafe(ref x, t + (3 * lanes));
            for (var k = t + 1; k < t + (nuint)n; k++)
            {
                a += Vector.LoadUnsafe(ref x, k);
                b += Vector.LoadUnsafe(ref x, k + lanes);
                c += Vector.LoadUnsafe(ref x, k + (2 * lanes));
                d += Vector.LoadUnsafe(ref x, k + (3 * lanes));
            }
            (a / below).StoreUnsafe(ref result, t);
            (b / below).StoreUnsafe(ref result, t + lanes);
            (c / below).StoreUnsafe(ref result, t + (2 * lanes));
            (d / below).StoreUnsafe(ref result, t + (3 * lanes));
        }
        for (; t < (nuint)rows; t += lanes)
            (SumAt(ref x, t, n) / below).StoreUnsafe(ref result, t);
    }

    /// <summary>The sample variance of each window of n values, or its root.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Variance(ref double x, int n, bool root, int rows, ref double result)
    {
        var count = new Vector<double>(n);
        var below = new Vector<double>(n - 1);
        nuint lanes = Lanes;
        for (nuint t = 0; t < (nuint)rows; t += 2 * lanes)
        {
            Vector<double> a = Vector.LoadUnsafe(ref x, t), b = Vector.LoadUnsafe(ref x, t + lanes);
            for (var k = t + 1; k < t + (nuint)n; k++)
            {
                a += Vector.LoadUnsafe(ref x, k);
                b += Vector.LoadUnsafe(ref x, k + lanes);
            }
            Vector<double> meanA = a / count, meanB = b / count;
            Vector<double> offA = Vector.LoadUnsafe(ref x, t) - meanA, offB = Vector.LoadUnsafe(ref x, t + lanes) - meanB;
            (a, b) = (offA * offA, offB * offB);
            for (var k = t + 1; k < t + (nuint)n; k++)
            {
                offA = Vector.LoadUnsafe(ref x, k) - meanA;
                offB = Vector.LoadUnsafe(ref x, k + lanes) - meanB;
                a += offA * offA;
                b += offB * offB;
            }
            (a, b) = (a / below, b / below);
            (root ? Vector.SquareRoot(a) : a).StoreUnsafe(ref result, t);
            (root ? Vector.SquareRoot(b) : b).StoreUnsafe(ref result, t + lanes);
        }
    }

    /// <summary>The sum of each window's products with weights.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void WeightedSum(ref double x, double[] weights, int rows, ref double result)
    {
        nuint lanes = Lanes;
        for (nuint t = 0; t < (nuint)rows; t += 2 * lanes)
        {
            var weight = new Vector<double>(weights[0]);
            Vector<double> a = Vector.LoadUnsafe(ref x, t) * weight, b = Vector.LoadUnsafe(ref x, t + lanes) * weight;
            for (var k = 1; k < weights.Length; k++)
            {
                weight = new Vector<double>(weights[k]);
                a += Vector.LoadUnsafe(ref x, t + (nuint)k) * weight;
                b += Vector.LoadUnsafe(ref x, t + (nuint)k + lanes) * weight;
            }
            a.StoreUnsafe(ref result, t);
            b.StoreUnsafe(ref result, t + lanes);
        }
    }

    /// <summary>Weights, oldest first: 1, decay, decay * decay ... from the youngest, divided by their sum.</summary>
    public static double[] ExponentialWeights(double decay, int taps)
    {
        var weights = new double[taps];
        weights[^1] = 1.0;
        for (var k = taps - 2; k >= 0; k--)
            weights[k] = weights[k + 1] * decay;
        var total = weights[0];
        for (var k = 1; k < taps; k++)
            total += weights[k];
        for (var k = 0; k < taps; k++)
            weights[k] /= total;
        return weights;
    }

    /// <summary>The largest or smallest value of each window of n values, by doubling the window.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Extreme(ref double x, int n, bool largest, int rows, ref double result, Span<double> scratch)
    {
        var available = rows + n - 1;
        for (var t = 0; t < available; t++)
            scratch[t] = Unsafe.Add(ref x, t);
        ref var best = ref scratch[0];
        for (var width = 1; width < n;)
        {
            var step = Math.Min(width, n - width);
            available -= step;
            for (nuint t = 0; t < (nuint)available; t += Lanes)
            {
                Vector<double> a = Vector.LoadUnsafe(ref best, t), b = Vector.LoadUnsafe(ref best, t + (nuint)step);
                (largest ? Larger(a, b) : Smaller(a, b)).StoreUnsafe(ref best, t);
            }
            width += step;
        }
        for (var t = 0; t < rows; t++)
            Unsafe.Add(ref result, t) = Unsafe.Add(ref best, t);
    }

    /// <summary>The slope per bar of the least-squares line through each window, or the youngest value minus that line.</summary>
    /// <remarks>Differences to the window's oldest value make both exactly 0 for a constant series.</remarks>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Line(ref double x, int n, bool residual, int rows, ref double result)
    {
        var middle = (n - 1) / 2.0;
        var spread = new Vector<double>(ComputeSpreadOfPlaces(n));
        for (nuint t = 0; t < (nuint)rows; t += Lanes)
        {
            var oldest = Vector.LoadUnsafe(ref x, t);
            var step = oldest - oldest;
            Vector<double> sum = step, product = step * new Vector<double>(0.0 - middle);
            for (var k = 1; k < n; k++)
            {
                step = Vector.LoadUnsafe(ref x, t + (nuint)k) - oldest;
                sum += step;
                product += step * new Vector<double>(k - middle);
            }
            var rise = product / spread;
            var line = (sum / new Vector<double>(n)) + (rise * new Vector<double>(middle));
            (residual ? step - line : rise).StoreUnsafe(ref result, t);
        }
    }

    /// <summary>Pearson's correlation of each pair of windows; 0 if one is constant.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Correlation(ref double x, ref double y, int n, int rows, ref double result)
    {
        for (nuint t = 0; t < (nuint)rows; t += Lanes)
        {
            Vector<double> meanX = SumAt(ref x, t, n) / new Vector<double>(n), meanY = SumAt(ref y, t, n) / new Vector<double>(n);
            var below = RootOfSquares(ref x, t, n, meanX) * RootOfSquares(ref y, t, n, meanY);
            var sum = (Vector.LoadUnsafe(ref x, t) - meanX) * (Vector.LoadUnsafe(ref y, t) - meanY);
            for (var k = t + 1; k < t + (nuint)n; k++)
                sum += (Vector.LoadUnsafe(ref x, k) - meanX) * (Vector.LoadUnsafe(ref y, k) - meanY);
            (sum / OneForZero(below)).StoreUnsafe(ref result, t);
        }
    }

    /// <summary>R squared of the least-squares line through each window; 0 for a constant.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Determination(ref double x, int n, int rows, ref double result)
    {
        var middle = (n - 1) / 2.0;
        var spread = new Vector<double>(Math.Sqrt(ComputeSpreadOfPlaces(n)));
        for (nuint t = 0; t < (nuint)rows; t += Lanes)
        {
            var mean = SumAt(ref x, t, n) / new Vector<double>(n);
            var below = RootOfSquares(ref x, t, n, mean) * spread;
            var sum = (Vector.LoadUnsafe(ref x, t) - mean) * new Vector<double>(0.0 - middle);
            for (var k = 1; k < n; k++)
                sum += (Vector.LoadUnsafe(ref x, t + (nuint)k) - mean) * new Vector<double>(k - middle);
            var correlated = sum / OneForZero(below);
            (correlated * correlated).StoreUnsafe(ref result, t);
        }
    }

    /// <summary>The rank of the youngest value of each window, divided by n; equal values have the mean of their ranks.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Rank(ref double x, int n, int rows, ref double result)
    {
        for (var t = 0; t < rows; t++)
        {
            ref var window = ref Unsafe.Add(ref x, t);
            var youngest = Unsafe.Add(ref window, n - 1);
            double below = 0, equal = 0;
            var isKnown = true;
            for (var k = 0; k < n; k++)
            {
                var value = Unsafe.Add(ref window, k);
                below += value < youngest ? 1 : 0;
                equal += value == youngest ? 1 : 0;
                isKnown &= !double.IsNaN(value);
            }
            Unsafe.Add(ref result, t) = isKnown ? (below + ((equal + 1.0) / 2.0)) / n : double.NaN;
        }
    }

    /// <summary>The position of the largest or smallest value of each window, from 1 (oldest); the oldest of equal ones.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void PlaceOfExtreme(ref double x, int n, bool largest, int rows, ref double result)
    {
        for (var t = 0; t < rows; t++)
        {
            ref var window = ref Unsafe.Add(ref x, t);
            var place = 0;
            var isKnown = true;
            for (var k = 0; k < n; k++)
            {
                double value = Unsafe.Add(ref window, k), best = Unsafe.Add(ref window, place);
                isKnown &= !double.IsNaN(value);
                place = (largest ? value > best : value < best) ? k : place;
            }
            Unsafe.Add(ref result, t) = isKnown ? place + 1.0 : double.NaN;
        }
    }

    /// <summary>A quantile of each window, with linear interpolation between the two nearest values.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void Quantile(ref double x, int n, double level, int rows, ref double result, Span<double> scratch)
    {
        var lower = (int)Math.Floor(level * (n - 1));
        var upper = Math.Min(lower + 1, n - 1);
        var fraction = (level * (n - 1)) - lower;
        var ordered = scratch[..n];
        for (var t = 0; t < rows; t++)
        {
            for (var k = 0; k < n; k++)
                ordered[k] = Unsafe.Add(ref x, t + k);
            ordered.Sort();
            double low = ordered[lower], high = ordered[upper];
            var value = high == low ? low : low + ((high - low) * fraction);
            Unsafe.Add(ref result, t) = double.IsNaN(ordered[0]) ? double.NaN : value; // NaN sorts first
        }
    }

    /// <summary>The sum of the squared positions of n values relative to their middle.</summary>
    private static double ComputeSpreadOfPlaces(int n) => n * ((n * (double)n) - 1) / 12;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static Vector<double> SumAt(ref double x, nuint t, int n)
    {
        var sum = Vector.LoadUnsafe(ref x, t);
        for (var k = t + 1; k < t + (nuint)n; k++)
            sum += Vector.LoadUnsafe(ref x, k);
        return sum;
    }

    /// <summary>The root of the sum of squared deviations, plus an allowance for rounding.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static Vector<double> RootOfSquares(ref double x, nuint t, int n, Vector<double> mean)
    {
        var off = Vector.LoadUnsafe(ref x, t) - mean;
        var sum = off * off;
        for (var k = t + 1; k < t + (nuint)n; k++)
        {
            off = Vector.LoadUnsafe(ref x, k) - mean;
            sum += off * off;
        }
        var rounding = new Vector<double>(RelativeEpsilon) * mean;
        return Vector.SquareRoot(sum + (new Vector<double>(n) * (rounding * rounding)));
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static Vector<double> OneForZero(Vector<double> values) =>
        values + Vector.ConditionalSelect(Vector.Equals(values, Vector<double>.Zero), Vector<double>.One, Vector<double>.Zero);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static Vector<double> IsGreater(Vector<double> a, Vector<double> b)
    {
        var known = Vector.BitwiseAnd(Vector.Equals(a, a), Vector.Equals(b, b));
        var value = Vector.ConditionalSelect(Vector.GreaterThan(a, b), Vector<double>.One, Vector<double>.Zero);
        return Vector.ConditionalSelect(known, value, new Vector<double>(double.NaN));
    }

    /// <summary>The larger value; NaN if one is NaN, which Vector.Max forgets before .NET 9.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static Vector<double> Larger(Vector<double> a, Vector<double> b) =>
        Vector.ConditionalSelect(Vector.BitwiseOr(Vector.GreaterThan(a, b), Vector.OnesComplement(Vector.Equals(a, a))), a, b);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static Vector<double> Smaller(Vector<double> a, Vector<double> b) =>
        Vector.ConditionalSelect(Vector.BitwiseOr(Vector.LessThan(a, b), Vector.OnesComplement(Vector.Equals(a, a))), a, b);

    /// <summary>-1, 0 or 1; NaN stays.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static Vector<double> Sign(Vector<double> a)
    {
        var zero = Vector<double>.Zero;
        var value = Vector.ConditionalSelect(Vector.LessThan(a, zero), new Vector<double>(-1.0), zero);
        value = Vector.ConditionalSelect(Vector.GreaterThan(a, zero), Vector<double>.One, value);
        return Vector.ConditionalSelect(Vector.Equals(a, a), value, a);
    }
}
