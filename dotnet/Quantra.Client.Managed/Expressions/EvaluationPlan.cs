using System.Globalization;
using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>The steps that evaluate several expressions together, of one symbol at a time. Equal sub-expressions are one step.</summary>
internal sealed class EvaluationPlan
{
    private readonly List<Series> _series = [];
    private readonly List<Step> _steps = [];
    private readonly Dictionary<string, int> _known = new(StringComparer.Ordinal);
    private readonly List<(string Name, int Slot)> _fields = [];
    private readonly int[] _outputs;
    private readonly int[] _rowsBefore;
    private readonly int _mostBefore;
    private readonly UnusedObjects<Workspace> _workspaces = new();

    public EvaluationPlan(IReadOnlyList<Expression> expressions)
    {
        _outputs = [.. expressions.Select(Add)];
        Lookbacks = Array.ConvertAll(_outputs, slot => _series[slot].Lookback);
        FieldsOfEach = [.. expressions.Select(FieldsOf)];
        _rowsBefore = CountRowsBefore();
        _mostBefore = _rowsBefore.DefaultIfEmpty().Max();
    }

    /// <summary>Names of the columns that the expressions read.</summary>
    public IEnumerable<string> Fields => _fields.Select(one => one.Name);

    /// <summary>Names of the columns that each expression reads.</summary>
    public IReadOnlyList<IReadOnlySet<string>> FieldsOfEach { get; }

    /// <summary>Look-back of each expression in bars, the current one included.</summary>
    public IReadOnlyList<int> Lookbacks { get; }

    /// <summary>The longest look-back; 1 without expressions.</summary>
    public int Lookback => Lookbacks.DefaultIfEmpty(1).Max();

    /// <summary>Evaluates the last rows of one symbol.</summary>
    /// <param name="column">Gets the values of a column by name, all of the same length, NaN = unknown.</param>
    /// <param name="rows">Number of rows.</param>
    /// <param name="result">[rows, F]; NaN where a window is incomplete or contains NaN.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public void Evaluate(ColumnReader column, int rows, Span<double> result)
    {
        if (!_workspaces.TryTake(out var work) || work.Rows < rows)
            work = new Workspace(this, rows);
        foreach (var (name, slot) in _fields)
            FillField(column(name), work.Slots[slot].AsSpan(0, rows + _rowsBefore[slot]));
        foreach (var step in _steps)
            Run(step, work, rows);
        for (var feature = 0; feature < _outputs.Length; feature++)
        {
            var values = work.Slots[_outputs[feature]].AsSpan(_rowsBefore[_outputs[feature]], rows);
            for (var row = 0; row < rows; row++)
                result[(row * _outputs.Length) + feature] = values[row];
        }
        _workspaces.Add(work);
    }

    /// <summary>Gets the values of a column, which are copied before the next one is read.</summary>
    public delegate ReadOnlySpan<double> ColumnReader(string name);

    private static void FillField(ReadOnlySpan<double> column, Span<double> target)
    {
        var lacking = Math.Max(0, target.Length - column.Length);
        target[..lacking].Fill(double.NaN);
        column[^(target.Length - lacking)..].CopyTo(target[lacking..]);
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private void Run(Step step, Workspace work, int rows)
    {
        var length = rows + _rowsBefore[step.Slot];
        ref var x = ref GetSource(step.First, step, work);
        ref var result = ref work.Slots[step.Slot][0];
        var n = step.Window;
        switch (step.Arithmetic)
        {
            case Arithmetic.Ref:
                for (var t = 0; t < length; t++)
                    work.Slots[step.Slot][t] = Unsafe.Add(ref x, t);
                break;
            case Arithmetic.Delta:
                OperatorKernels.Delta(ref x, n, length, ref result);
                break;
            case Arithmetic.Sum:
                OperatorKernels.Sum(ref x, n, 1.0, length, ref result);
                break;
            case Arithmetic.Mean:
                OperatorKernels.Sum(ref x, n, n, length, ref result);
                break;
            case Arithmetic.Std or Arithmetic.Var:
                OperatorKernels.Variance(ref x, n, step.Arithmetic == Arithmetic.Std, length, ref result);
                break;
            case Arithmetic.Max or Arithmetic.Min:
                OperatorKernels.Extreme(ref x, n, step.Arithmetic == Arithmetic.Max, length, ref result, work.Scratch);
                break;
            case Arithmetic.Ema or Arithmetic.Wilder:
                OperatorKernels.WeightedSum(ref x, step.Weights!, length, ref result);
                break;
            case Arithmetic.Slope or Arithmetic.Resi:
                OperatorKernels.Line(ref x, n, step.Arithmetic == Arithmetic.Resi, length, ref result);
                break;
            case Arithmetic.Rsquare:
                OperatorKernels.Determination(ref x, n, length, ref result);
                break;
            case Arithmetic.Corr:
                OperatorKernels.Correlation(ref x, ref GetSource(step.Second, step, work), n, length, ref result);
                break;
            case Arithmetic.Rank:
                OperatorKernels.Rank(ref x, n, length, ref result);
                break;
            case Arithmetic.Quantile:
                OperatorKernels.Quantile(ref x, n, step.Number, length, ref result, work.Scratch);
                break;
            case Arithmetic.IdxMax or Arithmetic.IdxMin:
                OperatorKernels.PlaceOfExtreme(ref x, n, step.Arithmetic == Arithmetic.IdxMax, length, ref result);
                break;
            case Arithmetic.Negate or Arithmetic.Abs or Arithmetic.Sign or Arithmetic.Log or Arithmetic.Sqrt or Arithmetic.Plus:
                OperatorKernels.Map(step.Arithmetic, ref x, step.Number, length, ref result);
                break;
            default:
                OperatorKernels.Combine(step.Arithmetic, ref x, ref GetSource(step.Second, step, work), length, ref result);
                break;
        }
    }

    /// <summary>The first row that a step reads of one of its inputs. All series end on the last session.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private ref double GetSource(int slot, Step step, Workspace work) =>
        ref work.Slots[slot][_series[slot].Constant is null ? _rowsBefore[slot] - _rowsBefore[step.Slot] - step.Reach : 0];

    private int Add(Expression expression)
    {
        switch (expression)
        {
            case NumberExpression number:
                return AddLeaf(number.ToString(), number.Value);
            case FieldExpression field:
                var slot = AddLeaf(field.ToString(), null);
                if (_fields.TrueForAll(one => one.Slot != slot))
                    _fields.Add((field.Name, slot));
                return slot;
            case NegativeExpression negative:
                var operand = Add(negative.Operand);
                return AddStep("negative", new Step(Arithmetic.Negate, operand, operand));
            case BinaryExpression binary:
                return AddStep(binary.Operator.ToString(), new Step(GetArithmetic(binary.Operator), Add(binary.Left), Add(binary.Right)));
            default:
                return Call((CallExpression)expression);
        }
    }

    private int Call(CallExpression call)
    {
        var parts = Array.ConvertAll(call.Arguments, Add);
        var arithmetic = call.Operator.Arithmetic;
        var (windows, number) = (call.Windows, call.Numbers.FirstOrDefault());
        var settings = string.Create(CultureInfo.InvariantCulture, $"{call.Operator.Name}:{string.Join(',', windows)}:{number:R}");
        var step = new Step(arithmetic, parts[0], parts[^1])
        {
            Window = windows.FirstOrDefault(),
            Number = number,
            Reach = call.Operator.ReachOf(windows),
            Weights = arithmetic switch
            {
                Arithmetic.Ema => OperatorKernels.ExponentialWeights(1.0 - (2.0 / (windows[0] + 1)), windows[1]),
                Arithmetic.Wilder => OperatorKernels.ExponentialWeights(1.0 - (1.0 / windows[0]), windows[1]),
                _ => null,
            },
        };
        return AddStep(settings, step);
    }

    private static Arithmetic GetArithmetic(char symbol) => symbol switch
    {
        '+' => Arithmetic.Add,
        '-' => Arithmetic.Subtract,
        '*' => Arithmetic.Multiply,
        '/' => Arithmetic.Divide,
        '>' => Arithmetic.IsGreater,
        _ => Arithmetic.IsLess,
    };

    private int AddLeaf(string key, double? constant)
    {
        if (!_known.TryGetValue(key, out var slot))
        {
            _known[key] = slot = _series.Count;
            _series.Add(new Series(1, constant));
        }
        return slot;
    }

    private int AddStep(string name, Step step)
    {
        var key = string.Create(CultureInfo.InvariantCulture, $"{name}({step.First},{step.Second})");
        if (_known.TryGetValue(key, out var slot))
            return slot;
        slot = _series.Count;
        _known[key] = slot;
        var (first, second) = (_series[step.First], _series[step.Second]);
        var lookback = Math.Max(first.Lookback, second.Lookback) + step.Reach;
        if (first.Constant is { } x && second.Constant is { } y)
        {
            _series.Add(new Series(lookback, ValueOf(step, x, y)));
            return slot;
        }
        _series.Add(new Series(lookback, null));
        _steps.Add(step with { Slot = slot });
        return slot;
    }

    /// <summary>The result of a step for constants.</summary>
    private static double ValueOf(Step step, double x, double y)
    {
        var values = new double[3, OperatorKernels.Slack];
        (values[0, 0], values[1, 0]) = (x, y);
        if (step.Arithmetic is Arithmetic.Negate or Arithmetic.Abs or Arithmetic.Sign or Arithmetic.Log or Arithmetic.Sqrt or Arithmetic.Plus)
            OperatorKernels.Map(step.Arithmetic, ref values[0, 0], step.Number, 1, ref values[2, 0]);
        else
            OperatorKernels.Combine(step.Arithmetic, ref values[0, 0], ref values[1, 0], 1, ref values[2, 0]);
        return values[2, 0];
    }

    /// <summary>The number of earlier rows of each slot that the outputs' last row depends on; 0 for a constant.</summary>
    private int[] CountRowsBefore()
    {
        var before = new int[_series.Count];
        for (var k = _steps.Count - 1; k >= 0; k--)
        {
            var step = _steps[k];
            foreach (var slot in new[] { step.First, step.Second })
            {
                if (_series[slot].Constant is null)
                    before[slot] = Math.Max(before[slot], before[step.Slot] + step.Reach);
            }
        }
        return before;
    }

    private static HashSet<string> FieldsOf(Expression expression) => expression switch
    {
        FieldExpression field => [field.Name],
        NegativeExpression negative => FieldsOf(negative.Operand),
        BinaryExpression binary => [.. FieldsOf(binary.Left), .. FieldsOf(binary.Right)],
        CallExpression call => [.. call.Arguments.SelectMany(FieldsOf)],
        _ => [],
    };

    /// <summary>One operation.</summary>
    private sealed record Step(Arithmetic Arithmetic, int First, int Second)
    {
        public int Slot { get; init; }

        public int Window { get; init; }

        public double Number { get; init; }

        public int Reach { get; init; }

        public double[]? Weights { get; init; }
    }

    private readonly record struct Series(int Lookback, double? Constant);

    private sealed class Workspace
    {
        public Workspace(EvaluationPlan plan, int rows)
        {
            Rows = rows;
            Slots = new double[plan._series.Count][];
            for (var slot = 0; slot < Slots.Length; slot++)
            {
                var constant = plan._series[slot].Constant;
                Slots[slot] = new double[rows + OperatorKernels.Slack + (constant is null ? plan._rowsBefore[slot] : plan._mostBefore)];
                if (constant is { } value)
                    Array.Fill(Slots[slot], value);
            }
            Scratch = new double[rows + plan._mostBefore + OperatorKernels.Slack];
        }

        public int Rows { get; }

        public double[][] Slots { get; }

        public double[] Scratch { get; }
    }
}
