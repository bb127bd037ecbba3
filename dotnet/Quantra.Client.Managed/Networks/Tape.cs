using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Rows in the memory of a tape.</summary>
/// <param name="Start">Index of the first value.</param>
/// <param name="Rows">Number of rows.</param>
/// <param name="Width">Padded width.</param>
internal readonly record struct TapeMatrix(int Start, int Rows, int Width)
{
    /// <summary>Some of the rows.</summary>
    public TapeMatrix Slice(int first, int rows) => new(Start + (first * Width), rows, Width);
}

/// <summary>
/// Computes the operations of a network and records how to compute their gradients, which it then does in reverse order
/// (Griewank and Walther 2008, chapter 3).
/// </summary>
/// <remarks>
/// A matrix has its values and its gradient at the same place of two memories. An operation in place reads only the
/// results in its gradient, so nothing else has to be kept. The padding of a gradient is arbitrary, and the padding of
/// all weights is 0. Rows are independent, so that their bits do not depend on other rows. Not thread-safe.
/// </remarks>
internal sealed class Tape<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly List<Action> _steps = [];
    private FloatBuffer _values = new(0);
    private FloatBuffer _gradients = new(0);

    /// <summary>Number of values of all matrices.</summary>
    public int Length { get; private set; }

    /// <summary>Takes an unused tape, or makes one, without matrices.</summary>
    public static Tape<TVector> Take(UnusedObjects<Tape<TVector>> unused)
    {
        if (!unused.TryTake(out var tape))
            return new Tape<TVector>();
        tape.Rewind(0);
        return tape;
    }

    /// <summary>Forgets the matrices that were added after an earlier length, and all steps in reverse.</summary>
    public void Rewind(int length)
    {
        _steps.Clear();
        Length = length;
    }

    /// <summary>Adds a matrix of zeros.</summary>
    public TapeMatrix Add(int rows, int width)
    {
        var matrix = new TapeMatrix(Length, rows, width);
        Length += rows * width;
        if (Length > _values.Length)
        {
            var larger = new FloatBuffer(Math.Max(Length, 2 * _values.Length));
            _values.Span.CopyTo(larger.Span);
            _values = larger;
        }
        Values(matrix).Clear();
        return matrix;
    }

    /// <summary>The values of a matrix, until the next one is added.</summary>
    public Span<float> Values(TapeMatrix matrix) => _values.Span.Slice(matrix.Start, matrix.Rows * matrix.Width);

    /// <summary>The gradient of a matrix, during the steps in reverse.</summary>
    public Span<float> Gradients(TapeMatrix matrix) => _gradients.Span.Slice(matrix.Start, matrix.Rows * matrix.Width);

    /// <summary>The first value of a column.</summary>
    public ref float Value(TapeMatrix matrix, int column = 0) => ref _values.At(matrix.Start + column);

    /// <summary>The gradient of the first value of a column.</summary>
    public ref float Gradient(TapeMatrix matrix, int column = 0) => ref _gradients.At(matrix.Start + column);

    /// <summary>Records how to compute the gradients of an operation's inputs from that of its result.</summary>
    public void Then(Action step) => _steps.Add(step);

    /// <summary>Sets all gradients to 0, for those of the results to be written.</summary>
    public void StartReverse()
    {
        // a product with few columns of a matrix adds zeros to what follows them
        if (_gradients.Length < Length + Kernels<TVector>.Padding)
            _gradients = new FloatBuffer(_values.Length + Kernels<TVector>.Padding);
        _gradients.Span[..Length].Clear();
    }

    /// <summary>Computes the gradients of all matrices.</summary>
    public void RunReverse()
    {
        for (var step = _steps.Count - 1; step >= 0; step--)
            _steps[step]();
    }

    /// <summary>Sets all rows to the same values, which have no gradient.</summary>
    public void Fill(TapeMatrix matrix, FloatBuffer row) =>
        Kernels<TVector>.FillRows(ref row.First, matrix.Rows, matrix.Width, ref Value(matrix), matrix.Width);

    /// <summary>Adds columns of x times weights to the result.</summary>
    /// <param name="x">The matrix.</param>
    /// <param name="column">First column.</param>
    /// <param name="inputs">Number of columns.</param>
    /// <param name="weights">[inputs, width of the result]</param>
    /// <param name="result">The result.</param>
    public void AddProduct(TapeMatrix x, int column, int inputs, FloatBuffer weights, TapeMatrix result)
    {
        Kernels<TVector>.AddProduct(
            ref Value(x, column), x.Width, x.Rows, inputs, ref weights.First, result.Width, ref Value(result), result.Width);
        Then(() => AddGradient(result, weights, inputs, ref Gradient(x, column), x.Width));
    }

    /// <summary>Adds the gradient of a product's input, from that of its result.</summary>
    public void AddGradient(TapeMatrix result, FloatBuffer weights, int inputs, ref float gradient, int stride)
    {
        var padded = Kernels<TVector>.Padded(inputs);
        Kernels<TVector>.AddProduct(
            ref Gradient(result), result.Width, result.Rows, result.Width, ref weights.Turned(inputs, padded).First, padded, ref gradient, stride);
    }

    /// <summary>The sum of two matrices.</summary>
    public TapeMatrix Sum(TapeMatrix left, TapeMatrix right)
    {
        var result = Joined(left);
        Kernels<TVector>.Add(ref Value(right), right.Rows * right.Width, ref Value(result));
        Then(() => Kernels<TVector>.Add(ref Gradient(result), right.Rows * right.Width, ref Gradient(right)));
        return result;
    }

    /// <summary>The rows of several matrices of one width, as a new matrix.</summary>
    public TapeMatrix Joined(params ReadOnlySpan<TapeMatrix> parts)
    {
        var rows = 0;
        foreach (var part in parts)
            rows += part.Rows;
        var (result, first) = (Add(rows, parts[0].Width), 0);
        foreach (var part in parts)
        {
            CopyTo(part, result.Slice(first, part.Rows));
            first += part.Rows;
        }
        return result;
    }

    /// <summary>Some rows of a matrix, in any order; 0 for the row -1.</summary>
    /// <param name="x">[N, width]</param>
    /// <param name="rows">[k, N]</param>
    /// <param name="less">[N, width] whose row n is subtracted from the k rows of its column; null = 0.</param>
    public TapeMatrix Gather(TapeMatrix x, int[] rows, TapeMatrix? less = null)
    {
        var result = Add(rows.Length, x.Width);
        for (var row = 0; row < rows.Length; row++)
        {
            if (rows[row] < 0)
                continue;
            var own = Values(result.Slice(row, 1));
            Values(x.Slice(rows[row], 1)).CopyTo(own);
            if (less is { } subtracted)
                Kernels<TVector>.Subtract(ref Value(subtracted.Slice(row % subtracted.Rows, 1)), own.Length, ref own[0]);
        }
        Then(() =>
        {
            for (var row = 0; row < rows.Length; row++)
            {
                if (rows[row] < 0)
                    continue;
                var own = Gradients(result.Slice(row, 1));
                Kernels<TVector>.Add(ref own[0], x.Width, ref Gradient(x.Slice(rows[row], 1)));
                for (var k = 0; less is not null && k < own.Length; k++)
                    Gradient(less.Value.Slice(row % less.Value.Rows, 1), k) -= own[k];
            }
        });
        return result;
    }

    /// <summary>Copies a matrix to rows of zeros.</summary>
    public void CopyTo(TapeMatrix x, TapeMatrix result)
    {
        Values(x).CopyTo(Values(result));
        Then(() => Kernels<TVector>.Add(ref Gradient(result), x.Rows * x.Width, ref Gradient(x)));
    }

    /// <summary>ELU in place.</summary>
    public void Elu(TapeMatrix x)
    {
        Kernels<TVector>.Elu(ref Value(x), x.Rows * x.Width);
        Then(() => MultiplyEluSlope(ref Value(x), ref Gradient(x), x.Rows * x.Width));
    }

    /// <summary>GELU.</summary>
    public TapeMatrix Gelu(TapeMatrix x)
    {
        var result = Add(x.Rows, x.Width);
        Values(x).CopyTo(Values(result));
        Kernels<TVector>.Gelu(ref Value(result), x.Rows * x.Width);
        Then(() => AddGeluGradient(ref Value(x), ref Gradient(result), ref Gradient(x), x.Rows * x.Width));
        return result;
    }

    /// <summary>skip + value * sigmoid(gate), where a row of gates holds first the values, then the gates.</summary>
    public TapeMatrix AddGated(TapeMatrix gates, TapeMatrix skip)
    {
        var result = Joined(skip);
        Kernels<TVector>.AddGated(ref Value(gates), skip.Rows, skip.Width, ref Value(result));
        Then(() => AddGatedGradient(ref Value(gates), ref Gradient(result), skip.Rows, skip.Width, ref Gradient(gates)));
        return result;
    }

    /// <summary>Layer norm of the first values of each row.</summary>
    public TapeMatrix Normalise(TapeMatrix x, int width, FloatBuffer gain, FloatBuffer shift)
    {
        var result = Add(x.Rows, x.Width);
        Values(x).CopyTo(Values(result));
        Kernels<TVector>.Normalise(ref Value(result), x.Width, x.Rows, width, ref gain.First, ref shift.First);
        Then(() =>
        {
            for (var row = 0; row < x.Rows; row++)
                AddNormGradient(Values(x.Slice(row, 1))[..width], gain.Span, Gradients(result.Slice(row, 1)), Gradients(x.Slice(row, 1)));
        });
        return result;
    }

    /// <summary>Softmax in place of the first values of each row; the others become 0.</summary>
    public void Softmax(TapeMatrix x, int width)
    {
        Kernels<TVector>.Softmax(ref Value(x), x.Width, x.Rows, width);
        Then(() =>
        {
            for (var row = 0; row < x.Rows; row++)
                MultiplySoftmaxSlope(Values(x.Slice(row, 1))[..width], Gradients(x.Slice(row, 1)));
        });
    }

    /// <summary>Adds each row of x times its number in a column of shares to the result.</summary>
    public void AddScaled(TapeMatrix x, TapeMatrix shares, int column, TapeMatrix result)
    {
        Kernels<TVector>.AddScaled(ref Value(x), x.Rows, x.Width, ref Value(shares, column), shares.Width, ref Value(result));
        Then(() =>
        {
            Kernels<TVector>.AddScaled(ref Gradient(result), x.Rows, x.Width, ref Value(shares, column), shares.Width, ref Gradient(x));
            for (var row = 0; row < x.Rows; row++)
                Gradients(shares)[(row * shares.Width) + column] += Dot(Values(x.Slice(row, 1)), Gradients(result.Slice(row, 1)));
        });
    }

    /// <summary>Adds a row for each window to rows of sessions, session first, in place.</summary>
    public void AddOfWindows(TapeMatrix x, TapeMatrix windows)
    {
        Kernels<TVector>.AddOfWindows(ref Value(x), x.Width, 0, x.Rows, ref Value(windows), windows.Rows);
        Then(() =>
        {
            for (var first = 0; first < x.Rows; first += windows.Rows)
                Kernels<TVector>.Add(ref Gradient(x.Slice(first, windows.Rows)), windows.Rows * windows.Width, ref Gradient(windows));
        });
    }

    private static float Dot(ReadOnlySpan<float> left, ReadOnlySpan<float> right)
    {
        var sum = 0.0;
        for (var k = 0; k < left.Length; k++)
            sum += (double)left[k] * right[k];
        return (float)sum;
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void MultiplyEluSlope(ref float values, ref float gradient, int length)
    {
        TVector zero = TVector.Of(0f), one = TVector.Of(1f);
        for (nuint k = 0; k < (nuint)length; k += (nuint)TVector.Lanes)
        {
            var value = TVector.Load(ref values, k);
            (TVector.Load(ref gradient, k) * TVector.SelectLess(zero, value, one, value + one)).Store(ref gradient, k);
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddGeluGradient(ref float x, ref float result, ref float gradient, int length)
    {
        for (nuint k = 0; k < (nuint)length; k += (nuint)TVector.Lanes)
        {
            var slope = Activations<TVector>.GeluSlope(TVector.Load(ref x, k));
            TVector.MultiplyAdd(TVector.Load(ref result, k), slope, TVector.Load(ref gradient, k)).Store(ref gradient, k);
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddGatedGradient(ref float gates, ref float result, int rows, int width, ref float gradient)
    {
        var one = TVector.Of(1f);
        for (var row = 0; row < rows; row++)
        {
            for (nuint k = 0, gate = (nuint)width; k < (nuint)width; k += (nuint)TVector.Lanes, gate += (nuint)TVector.Lanes)
            {
                var share = Activations<TVector>.Sigmoid(TVector.Load(ref gates, gate));
                var own = TVector.Load(ref result, k) * share;
                (TVector.Load(ref gradient, k) + own).Store(ref gradient, k);
                (TVector.Load(ref gradient, gate) + (own * TVector.Load(ref gates, k) * (one - share))).Store(ref gradient, gate);
            }
            gates = ref Unsafe.Add(ref gates, 2 * width);
            result = ref Unsafe.Add(ref result, width);
            gradient = ref Unsafe.Add(ref gradient, 2 * width);
        }
    }

    /// <summary>Adds the gradient of a layer norm of x, in float64.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddNormGradient(ReadOnlySpan<float> x, ReadOnlySpan<float> gain, ReadOnlySpan<float> result, Span<float> gradient)
    {
        double sum = 0, squares = 0, mean = 0, product = 0;
        foreach (var value in x)
            sum += value;
        var center = sum / x.Length;
        foreach (var value in x)
            squares += (value - center) * (value - center);
        var deviation = Math.Sqrt((squares / x.Length) + NetworkSettings.NormEpsilon);
        for (var k = 0; k < x.Length; k++)
        {
            double own = result[k] * gain[k];
            mean += own;
            product += own * (x[k] - center);
        }
        mean /= x.Length;
        product /= x.Length * deviation * deviation;
        for (var k = 0; k < x.Length; k++)
            gradient[k] += (float)(((result[k] * gain[k]) - mean - ((x[k] - center) * product)) / deviation);
    }

    private static void MultiplySoftmaxSlope(ReadOnlySpan<float> shares, Span<float> gradient)
    {
        var mean = Dot(shares, gradient);
        for (var k = 0; k < shares.Length; k++)
            gradient[k] = shares[k] * (gradient[k] - mean);
    }

    /// <summary>Attention of several heads over the sessions of each window.</summary>
    /// <param name="windows">Number of windows.</param>
    /// <param name="queries">[queries, windows, width], whose first columns are the heads'.</param>
    /// <param name="keys">[sessions, windows, width], from <paramref name="keyColumn"/> on.</param>
    /// <param name="keyColumn">First column of the keys.</param>
    /// <param name="values">[sessions, windows, width], from <paramref name="valueColumn"/> on.</param>
    /// <param name="valueColumn">First column of the values.</param>
    /// <param name="heads">Their number and their width.</param>
    /// <param name="visible">[queries, windows] number of sessions that each query sees.</param>
    /// <param name="isShared">Whether the heads share the values and are averaged; otherwise their results are joined.</param>
    /// <param name="logits">[queries, windows, heads, sessions] terms of the logits, which become the shares; null = 0.</param>
    /// <returns>The result [queries, windows, width], and the shares of the sessions [queries, windows, heads, sessions].</returns>
    public (TapeMatrix Result, TapeMatrix Shares) Attend(
        int windows, TapeMatrix queries, TapeMatrix keys, int keyColumn, TapeMatrix values, int valueColumn, (int Count, int Width) heads, int[] visible, bool isShared, TapeMatrix? logits = null)
    {
        var shares = logits ?? Add(queries.Rows * heads.Count, Kernels<TVector>.Padded(keys.Rows / windows));
        var result = Add(queries.Rows, Kernels<TVector>.Padded(isShared ? heads.Width : heads.Width * heads.Count));
        var root = MathF.Sqrt(heads.Width);
        var weight = isShared ? 1f / heads.Count : 1f;
        for (var index = 0; index < shares.Rows; index++)
        {
            var (row, head) = (index / heads.Count, index % heads.Count);
            var (window, own, start) = (row % windows, head * heads.Width, isShared ? 0 : head * heads.Width);
            ref var share = ref Value(shares.Slice(index, 1));
            AddDots(
                ref Value(queries.Slice(row, 1), own), ref Value(keys.Slice(window, 1), keyColumn + own), windows * keys.Width,
                visible[row], heads.Width, 1f / root, ref share);
            Kernels<TVector>.Softmax(ref share, shares.Width, 1, visible[row]);
            AddSums(
                ref share, weight, ref Value(values.Slice(window, 1), valueColumn + start), windows * values.Width,
                visible[row], heads.Width, ref Value(result.Slice(row, 1), start));
        }
        Then(() =>
        {
            for (var index = 0; index < shares.Rows; index++)
            {
                var (row, head) = (index / heads.Count, index % heads.Count);
                var (window, own, start) = (row % windows, head * heads.Width, isShared ? 0 : head * heads.Width);
                var (count, share) = (visible[row], shares.Slice(index, 1));
                ref var slope = ref Gradient(share);
                ref var upper = ref Gradient(result.Slice(row, 1), start);
                var (key, value) = (keys.Slice(window, 1), values.Slice(window, 1));
                AddDots(ref upper, ref Value(value, valueColumn + start), windows * values.Width, count, heads.Width, weight, ref slope);
                AddOuter(ref Value(share), weight, ref upper, count, heads.Width, ref Gradient(value, valueColumn + start), windows * values.Width);
                MultiplySoftmaxSlope(Values(share)[..count], Gradients(share));
                AddSums(ref slope, 1f / root, ref Value(key, keyColumn + own), windows * keys.Width, count, heads.Width, ref Gradient(queries.Slice(row, 1), own));
                AddOuter(
                    ref slope, 1f / root, ref Value(queries.Slice(row, 1), own), count, heads.Width, ref Gradient(key, keyColumn + own), windows * keys.Width);
            }
        });
        return (result, shares);
    }

    /// <summary>Adds factor * (x . row) of each row to the results.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddDots(ref float x, ref float rows, int stride, int count, int width, float factor, ref float results)
    {
        for (var row = 0; row < count; row++)
        {
            var sum = 0f;
            for (var k = 0; k < width; k++)
                sum = MathF.FusedMultiplyAdd(Unsafe.Add(ref x, k), Unsafe.Add(ref rows, (row * stride) + k), sum);
            Unsafe.Add(ref results, row) += sum * factor;
        }
    }

    /// <summary>Adds the sum of all rows times factor * share to the result.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddSums(ref float shares, float factor, ref float rows, int stride, int count, int width, ref float result)
    {
        for (var row = 0; row < count; row++)
        {
            var share = Unsafe.Add(ref shares, row) * factor;
            for (var k = 0; k < width; k++)
            {
                ref var sum = ref Unsafe.Add(ref result, k);
                sum = MathF.FusedMultiplyAdd(share, Unsafe.Add(ref rows, (row * stride) + k), sum);
            }
        }
    }

    /// <summary>Adds x times factor * share to each row.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void AddOuter(ref float shares, float factor, ref float x, int count, int width, ref float rows, int stride)
    {
        for (var row = 0; row < count; row++)
        {
            var share = Unsafe.Add(ref shares, row) * factor;
            for (var k = 0; k < width; k++)
            {
                ref var sum = ref Unsafe.Add(ref rows, (row * stride) + k);
                sum = MathF.FusedMultiplyAdd(share, Unsafe.Add(ref x, k), sum);
            }
        }
    }
}
