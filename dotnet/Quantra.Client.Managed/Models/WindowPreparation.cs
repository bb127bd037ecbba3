using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Checks feature windows that callers have computed. Thread-safe.</summary>
internal sealed class WindowPreparation(Pipeline pipeline)
{
    private const double LargestValue = 1e6;
    private const double LargestLocation = 100;

    /// <summary>Checks windows and copies them to a network's inputs.</summary>
    /// <exception cref="QuantraException">They do not fit the model, or hold an impossible number.</exception>
    public PreparedRequest Prepare(FeatureWindow window)
    {
        if (window.Symbols.Count == 0)
            throw PredictionError.Malformed("symbols: have 0, need at least 1; name each row", ("field", "symbols")).ToException();
        var shapes = DescribeShapes(window);
        if (window.AnchorPrice.Length != 0 && window.AnchorPrice.Length != window.Symbols.Count)
        {
            throw PredictionError.Malformed(
                FormattableString.Invariant($"window.anchor_price: have {window.AnchorPrice.Length} prices, need {window.Symbols.Count}, one per symbol, or none"),
                ("field", "window.anchor_price")).ToException();
        }

        CheckNames(window);
        BarChecks.CheckSymbols(window.Symbols);
        CheckShapes(window, shapes);
        var asOf = window.AsOf is { } day ? Day.Of(day) : 0;
        if (asOf != 0 && !pipeline.Calendar.IsSession(asOf))
            throw Invalid(FormattableString.Invariant($"as_of_session {asOf} is not a session of {pipeline.Calendar.Name}; send the session of the last row, yyyymmdd, or 0 if it is unknown"));
        var inputs = CreateInputs(window);
        CheckNumbers(window, inputs);
        var following = asOf == 0 ? default : pipeline.Calendar.Following(asOf, pipeline.Target.Reach).Span;
        return new PreparedRequest
        {
            Symbols = window.Symbols,
            Usable = [.. window.Symbols.Select(_ => true)],
            Inputs = inputs,
            AsOf = asOf,
            TargetSessions = asOf == 0 ? [] : pipeline.Target.Sessions(following),
            BaseSession = asOf == 0 ? null : pipeline.Target.FindBaseSession(asOf, following),
            Anchor = window.AnchorPrice.IsEmpty ? null : window.AnchorPrice.ToArray(),
        };
    }

    /// <summary>The shape of each group; the length of its last axis follows from the others.</summary>
    private static (string Name, string Type, int[] Shape)[] DescribeShapes(FeatureWindow window)
    {
        var (symbols, length) = (window.Symbols.Count, window.EncoderLength);
        var observed = DescribeShape("observed", 4, window.Observed.Length, symbols, length);
        if (!window.Mask.IsEmpty && window.Mask.Length != window.Observed.Length)
            throw PredictionError.Malformed($"window.mask: has {window.Mask.Length} values, need the shape of observed {Text(observed)}", ("field", "window.mask")).ToException();
        return
        [
            ("observed", "float32", observed),
            ("known", "float32", DescribeShape("known", 4, window.Known.Length, symbols, length + window.FutureLength)),
            ("static", "float32", DescribeShape("static", 4, window.Static.Length, symbols)),
            ("mask", "bool", observed),
            ("location", "float64", Level("location", window.Location.Length, symbols)),
            ("scale", "float64", Level("scale", window.Scale.Length, symbols)),
        ];
    }

    private static int[] Level(string name, int elements, int symbols)
    {
        if (elements > symbols)
            return DescribeShape(name, 8, elements, symbols);
        return elements == symbols
            ? [elements]
            : throw PredictionError.Malformed(
                FormattableString.Invariant($"window.{name}: has shape [{elements}], need 1 axes, the first of length {symbols}, one row per symbol"),
                ("field", "window." + name),
                ("need", symbols.ToString(CultureInfo.InvariantCulture))).ToException();
    }

    private static int[] DescribeShape(string name, int size, int elements, params int[] axes)
    {
        var cells = axes.Aggregate(1, (product, axis) => product * axis);
        if (cells > 0 && elements % cells == 0)
            return [.. axes, elements / cells];
        int[] shape = [.. axes, cells > 0 ? elements / cells : 0];
        throw PredictionError.Malformed(
            FormattableString.Invariant($"window.{name}: have {elements * (long)size} bytes, need another number for the shape {Text(shape)}"),
            ("field", "window." + name)).ToException();
    }

    private void CheckNames(FeatureWindow window)
    {
        var (sent, ours) = (window.Features, pipeline.Features.Names);
        if (sent.Count > 0)
        {
            string[] unknown = [.. sent.Where(name => !ours.Contains(name, StringComparer.Ordinal)).Take(5)];
            if (unknown.Length > 0)
            {
                throw PredictionError.Of(
                    QuantraStatus.InvalidArgument,
                    QuantraReason.UnknownFeature,
                    $"features {PythonText.List(unknown)} are not the model's; it reads {PythonText.List(ours)}",
                    ("unknown", string.Join(',', unknown))).ToException();
            }

            if (!sent.SequenceEqual(ours, StringComparer.Ordinal))
            {
                string[] missing = [.. ours.Where(name => !sent.Contains(name, StringComparer.Ordinal))];
                throw PredictionError.Of(
                    QuantraStatus.InvalidArgument,
                    QuantraReason.FeatureMismatch,
                    $"the features are in another order than the model's, or some are missing: missing {PythonText.List(missing)}; it reads {PythonText.List(ours)}",
                    ("missing", string.Join(',', missing))).ToException();
            }
        }

        if (window.SchemaHash != pipeline.SchemaHash)
        {
            throw PredictionError.Of(
                QuantraStatus.InvalidArgument,
                QuantraReason.FeatureMismatch,
                $"the windows were made with schema '{window.SchemaHash[..Math.Min(80, window.SchemaHash.Length)]}', the model's is '{pipeline.SchemaHash}' with features {PythonText.List(ours)}; GetModel returns the expressions",
                ("expected", pipeline.SchemaHash)).ToException();
        }
    }

    private void CheckShapes(FeatureWindow window, (string Name, string Type, int[] Shape)[] groups)
    {
        var (sizes, symbols, horizons) = (pipeline.Sizes, window.Symbols.Count, pipeline.Target.Horizons.Length);
        var isFlat = !pipeline.Normaliser.IsPerHorizon || (horizons == 1 && window.Location.Length == symbols);
        int[] levels = isFlat ? [symbols] : [symbols, horizons];
        int[][] needs =
        [
            [symbols, sizes.EncoderLength, sizes.Observed],
            [symbols, sizes.EncoderLength + sizes.FutureLength, sizes.Known],
            [symbols, sizes.Static],
            [symbols, sizes.EncoderLength, sizes.Observed],
            levels,
            levels,
        ];
        foreach (var ((name, type, shape), need) in groups.Zip(needs))
        {
            if (!shape.AsSpan().SequenceEqual(need))
            {
                throw PredictionError.Of(
                    QuantraStatus.InvalidArgument,
                    QuantraReason.WindowShape,
                    $"{name} is {type} of shape {Text(shape)}, the model reads {type} of shape {Text(need)}").ToException();
            }
        }
    }

    private NetworkInputs CreateInputs(FeatureWindow window)
    {
        var horizons = pipeline.Target.Horizons.Length;
        return new NetworkInputs
        {
            Rows = window.Symbols.Count,
            Observed = window.Observed.ToArray(),
            Known = window.Known.ToArray(),
            Static = window.Static.ToArray(),
            Mask = window.Mask.IsEmpty ? [.. Enumerable.Repeat(true, window.Observed.Length)] : window.Mask.ToArray(),
            Location = SpreadOverHorizons(window.Location),
            Scale = SpreadOverHorizons(window.Scale),
        };

        double[] SpreadOverHorizons(ReadOnlyMemory<double> levels) => levels.Length == window.Symbols.Count * horizons
            ? levels.ToArray()
            : [.. levels.ToArray().SelectMany(level => Enumerable.Repeat(level, horizons))];
    }

    private static void CheckNumbers(FeatureWindow window, NetworkInputs inputs)
    {
        foreach (var price in window.AnchorPrice.Span)
        {
            if (!SymbolChecks.CanAnchor(price))
                throw Invalid($"anchor_price holds a value that is not above 0 and at most {NumberText.General(SymbolChecks.LargestPrice)}");
        }

        CheckWithin("observed", inputs.Observed, LargestValue);
        CheckWithin("known", inputs.Known, LargestValue);
        CheckWithin("static", inputs.Static, LargestValue);
        CheckWithin("location", inputs.Location, LargestLocation);
        CheckWithin("scale", inputs.Scale, SymbolChecks.LargestScale);
        for (var cell = 0; cell < inputs.Mask.Length; cell++)
        {
            if (!inputs.Mask[cell] && inputs.Observed[cell] != 0)
                throw Invalid("observed holds a value in a cell that mask marks as unknown; it must be 0");
        }

        for (var row = 0; row < inputs.Rows; row++)
        {
            if (!inputs.MaskOf(row).Contains(true))
                throw Invalid($"mask marks every cell of {window.Symbols[row]} as unknown, which leaves nothing to forecast from; leave the symbol out");
        }

        if (!Array.TrueForAll(inputs.Scale, scale => scale > 0))
            throw Invalid("scale holds a value that is not positive");
    }

    private static void CheckWithin<T>(string name, T[] values, double largest)
        where T : System.Numerics.INumber<T>
    {
        foreach (var value in values)
        {
            if (!(double.CreateChecked(value) <= largest && double.CreateChecked(value) >= -largest))
                throw Invalid($"{name} holds a value that is not finite, or beyond {NumberText.General(largest)}");
        }
    }

    private static string Text(int[] shape) => $"[{string.Join(", ", shape)}]";

    private static QuantraException Invalid(string message) => PredictionError.Of(QuantraStatus.InvalidArgument, QuantraReason.InvalidInput, message).ToException();
}
