using System.Buffers;
using System.Buffers.Binary;

namespace Quantra.Client.Managed;

/// <summary>The kind "trees": a forest per horizon and quantile over summaries of each window, in float64.</summary>
internal sealed class TreesNetwork : INetwork
{
    private readonly WindowSummaries _summaries;
    private readonly int _forests;
    private readonly int _trees;
    private readonly int _splits;
    private readonly short[] _columns;
    private readonly double[] _thresholds;
    private readonly bool[] _unknownLeft;
    private readonly sbyte[] _left;
    private readonly sbyte[] _right;
    private readonly double[] _values;
    private readonly double[] _counts;

    public TreesNetwork(NetworkWeights weights, NetworkSettings settings, InputSizes sizes, Target target, double[] levels)
    {
        _summaries = new WindowSummaries(sizes, target);
        (_forests, _trees, _splits) = (target.Horizons.Length * levels.Length, settings.Trees, settings.Leaves - 1);
        int[] splits = [target.Horizons.Length, levels.Length, _trees, _splits];
        int[] leaves = [target.Horizons.Length, levels.Length, _trees, _splits + 1];
        _columns = ToInt16(weights.TakeTensor("columns", splits, "I16").Bytes.Span);
        _thresholds = weights.TakeTensor("thresholds", splits, "F64").ToDouble();
        _unknownLeft = weights.TakeTensor("unknown_left", splits, "BOOL").ToBoolean();
        _left = ToInt8(weights.TakeTensor("left", splits, "I8").Bytes.Span);
        _right = ToInt8(weights.TakeTensor("right", splits, "I8").Bytes.Span);
        _values = weights.TakeTensor("values", leaves, "F64").ToDouble();
        _counts = weights.TakeTensor("counts", leaves, "I32").ToNumbers();
        for (var tree = 0; tree < _forests * _trees; tree++)
            CheckTree(tree);
        if (!_thresholds.All(double.IsFinite))
            throw NetworkWeights.NotFinite("thresholds");
        if (!_values.All(double.IsFinite))
            throw NetworkWeights.NotFinite("values");
    }

    /// <summary>The columns that the trees read.</summary>
    public WindowSummaries Summaries => _summaries;

    /// <summary>Number of forests, one for each horizon and quantile.</summary>
    public int Forests => _forests;

    /// <summary>Trees of each forest.</summary>
    public int TreesOfForest => _trees;

    /// <summary>The first split of a tree, or ~0 if it has none.</summary>
    public int Root(int tree) => _columns[tree * _splits] < 0 ? ~0 : 0;

    /// <summary>A split: its column, and the splits or ~leaves on both sides.</summary>
    public (int Column, int Left, int Right) Split(int tree, int split)
    {
        var place = (tree * _splits) + split;
        return (_columns[place], _left[place], _right[place]);
    }

    /// <summary>Whether a value of its column goes to the left of a split.</summary>
    public bool GoesLeft(int tree, int split, double value)
    {
        var place = (tree * _splits) + split;
        return value <= _thresholds[place] || (double.IsNaN(value) && _unknownLeft[place]);
    }

    /// <summary>The value of a leaf, and the training windows that reached it.</summary>
    public (double Value, double Count) Leaf(int tree, int leaf)
    {
        var place = (tree * (_splits + 1)) + leaf;
        return (_values[place], _counts[place]);
    }

    /// <summary>Training windows below each split of a tree.</summary>
    public double[] CountBelow(int tree)
    {
        var counts = new double[_splits];
        for (var split = _splits - 1; split >= 0; split--)
            counts[split] = Below(_left[(tree * _splits) + split]) + Below(_right[(tree * _splits) + split]);
        return counts;

        double Below(int child) => child < 0 ? Leaf(tree, ~child).Count : counts[child];
    }

    /// <inheritdoc/>
    public void Run(NetworkInputs inputs, Span<double> units)
    {
        var columns = ArrayPool<double>.Shared.Rent(_summaries.Width);
        for (var row = 0; row < inputs.Rows; row++)
        {
            _summaries.Compute(inputs, row, columns);
            for (var forest = 0; forest < _forests; forest++)
            {
                var sum = ValueOf(forest * _trees, columns);
                for (var tree = 1; tree < _trees; tree++)
                    sum += ValueOf((forest * _trees) + tree, columns);
                units[(row * _forests) + forest] = sum;
            }
        }
        ArrayPool<double>.Shared.Return(columns);
    }

    private static short[] ToInt16(ReadOnlySpan<byte> bytes)
    {
        var values = new short[bytes.Length / sizeof(short)];
        for (var k = 0; k < values.Length; k++)
            values[k] = BinaryPrimitives.ReadInt16LittleEndian(bytes[(k * sizeof(short))..]);
        return values;
    }

    private static sbyte[] ToInt8(ReadOnlySpan<byte> bytes) => [.. bytes.ToArray().Select(one => unchecked((sbyte)one))];

    /// <summary>The value of the leaf that a row reaches; a value goes left if it is at most the threshold.</summary>
    private double ValueOf(int tree, double[] columns)
    {
        var start = tree * _splits;
        var leaf = tree * (_splits + 1);
        if (_columns[start] < 0)
            return _values[leaf];
        var split = 0;
        while (true)
        {
            var place = start + split;
            int next = GoesLeft(tree, split, columns[_columns[place]]) ? _left[place] : _right[place];
            if (next < 0)
                return _values[leaf + ~next];
            split = next;
        }
    }

    /// <summary>Checks that columns exist, and that each split leads to later splits or to leaves.</summary>
    private void CheckTree(int tree)
    {
        var start = tree * _splits;
        var used = 0;
        while (used < _splits && _columns[start + used] >= 0)
            used++;
        for (var split = 0; split < _splits; split++)
        {
            var place = start + split;
            if (_columns[place] < -1 || _columns[place] >= _summaries.Width)
                throw Invalid($"a split compares column {_columns[place]}, but there are {_summaries.Width} columns, from 0");
            if (split >= used && _columns[place] >= 0)
                throw Invalid("an unused split is followed by a used one");
            foreach (int child in new[] { _left[place], _right[place] })
            {
                if (split < used && (child >= 0 ? child <= split || child >= used : ~child > used))
                    throw Invalid($"a split leads to {child}, but must lead to a split after it or to ~leaf");
            }
        }
    }

    private static QuantraException Invalid(string problem) => ArtifactError.Of(ArtifactFiles.WeightsFile, problem);
}

/// <summary>The columns that the trees read.</summary>
/// <remarks>
/// An observed feature has a column for its last session, and for its mean and its population standard deviation over
/// the last 5, 20 and all sessions, summed from the newest. A feature without a known cell is NaN.
/// </remarks>
internal sealed class WindowSummaries
{
    private readonly InputSizes _sizes;
    private readonly int[] _ends;
    private readonly int[] _spans;

    public WindowSummaries(InputSizes sizes, Target target)
    {
        _sizes = sizes;
        _ends = target.FindEnds(sizes.EncoderLength);
        int[] shorter = [5, 20];
        _spans = [.. shorter.Where(span => span < sizes.EncoderLength), sizes.EncoderLength];
        Width = ((1 + (2 * _spans.Length)) * sizes.Observed) + (_ends.Length * (sizes.Known + 2)) + sizes.Static;
    }

    /// <summary>Number of columns.</summary>
    public int Width { get; }

    /// <summary>Computes the columns of one window.</summary>
    public void Compute(NetworkInputs inputs, int row, Span<double> columns)
    {
        var features = _sizes.Observed;
        var observed = inputs.ObservedOf(row);
        var mask = inputs.MaskOf(row);
        for (var feature = 0; feature < features; feature++)
            Summarise(observed[feature..], mask[feature..], feature, columns);
        var place = (1 + (2 * _spans.Length)) * features;
        var known = inputs.KnownOf(row, (_sizes.EncoderLength + _sizes.FutureLength) * _sizes.Known);
        foreach (var end in _ends)
        {
            foreach (var value in known.Slice(end * _sizes.Known, _sizes.Known))
                columns[place++] = value;
        }
        foreach (var value in inputs.StaticOf(row))
            columns[place++] = value;
        var horizons = _ends.Length;
        inputs.Location.AsSpan(row * horizons, horizons).CopyTo(columns[place..]);
        inputs.Scale.AsSpan(row * horizons, horizons).CopyTo(columns[(place + horizons)..]);
    }

    /// <summary>Numbers of observed features, known features, static columns, location and scale, repeated for their columns.</summary>
    public int[] Repeat(int[] observed, int[] known, int[] statics, int location, int scale) =>
    [
        .. Enumerable.Repeat(observed, 1 + (2 * _spans.Length)).SelectMany(own => own),
        .. Enumerable.Repeat(known, _ends.Length).SelectMany(own => own),
        .. statics,
        .. Enumerable.Repeat(location, _ends.Length),
        .. Enumerable.Repeat(scale, _ends.Length),
    ];

    /// <summary>Sums numbers [columns] per observed feature, known feature and static column, then over locations and over scales.</summary>
    public (double[] Observed, double[] Known, double[] Static, double Location, double Scale) SumGroups(ReadOnlySpan<double> columns)
    {
        var (observed, known, statics) = (new double[_sizes.Observed], new double[_sizes.Known], new double[_sizes.Static]);
        var ends = _ends.Length;
        var place = Add(columns, 0, 1 + (2 * _spans.Length), observed);
        place = Add(columns, place, ends, known);
        place = Add(columns, place, 1, statics);
        double[] location = [0.0], scale = [0.0];
        place = Add(columns, place, ends, location);
        Add(columns, place, ends, scale);
        return (observed, known, statics, location[0], scale[0]);

        static int Add(ReadOnlySpan<double> columns, int start, int times, double[] sums)
        {
            for (var k = 0; k < times * sums.Length; k++)
                sums[k % sums.Length] += columns[start + k];
            return start + (times * sums.Length);
        }
    }

    private void Summarise(ReadOnlySpan<float> cells, ReadOnlySpan<bool> mask, int feature, Span<double> columns)
    {
        int features = _sizes.Observed, last = _sizes.EncoderLength - 1, span = 0;
        columns[feature] = mask[last * features] ? cells[last * features] : double.NaN;
        double count = 0, sum = 0, squares = 0;
        for (var age = 0; age <= last; age++)
        {
            var place = (last - age) * features;
            double value = mask[place] ? cells[place] : 0.0;
            count += mask[place] ? 1 : 0;
            sum += value;
            squares += value * value;
            if (age + 1 != _spans[span])
                continue;
            var mean = sum / count;
            columns[((1 + span) * features) + feature] = mean;
            columns[((1 + _spans.Length + span) * features) + feature] = Math.Sqrt(Normaliser.AtLeast((squares / count) - (mean * mean), 0.0));
            span++;
        }
    }
}
