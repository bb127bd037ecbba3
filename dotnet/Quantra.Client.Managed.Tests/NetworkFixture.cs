namespace Quantra.Client.Managed.Tests;

/// <summary>A network of tests/managed_fixtures.py with inputs and expected outputs.</summary>
internal sealed class NetworkFixture
{
    private readonly Dictionary<string, Tensor> _arrays;
    private readonly byte[] _settings;
    private readonly string _name;

    private NetworkFixture(string name)
    {
        _name = name;
        var folder = Path.Combine(AppContext.BaseDirectory, "Fixtures", "networks");
        _settings = File.ReadAllBytes(Path.Combine(folder, $"{name}.json"));
        _arrays = Safetensors.Read(File.ReadAllBytes(Path.Combine(folder, $"{name}.safetensors")), name);
        var settings = JsonRecord.Parse(_settings, name);
        Target = Target.Read(settings.Record("target"));
        Levels = settings.Numbers("quantiles");
        var sizes = settings.Record("sizes");
        Sizes = new InputSizes(
            sizes.Integer("encoder_length"), sizes.Integer("future_length"), sizes.Integer("observed"),
            sizes.Integer("known"), sizes.Integer("static"), sizes.Integers("static_widths"), sizes.Has("nodes") ? sizes.Integer("nodes") : 0);
        Inputs = new NetworkInputs
        {
            Rows = _arrays["inputs.location"].Shape[0],
            Observed = _arrays["inputs.observed"].ToSingle(),
            Known = _arrays["inputs.known"].ToSingle(),
            Static = _arrays["inputs.static"].ToSingle(),
            Mask = _arrays["inputs.mask"].ToBoolean(),
            Location = _arrays["inputs.location"].ToDouble(),
            Scale = _arrays["inputs.scale"].ToDouble(),
            Nodes = _arrays.TryGetValue("inputs.nodes", out var nodes) ? Array.ConvertAll(nodes.ToInt64(), node => (int)node) : [],
        };
        Units = _arrays["units"].Type == "F32" ? [.. _arrays["units"].ToSingle()] : _arrays["units"].ToDouble();
        Exact = _arrays["units_float64"].ToDouble();
    }

    public Target Target { get; }

    public double[] Levels { get; }

    public InputSizes Sizes { get; }

    public NetworkInputs Inputs { get; }

    /// <summary>The outputs of torch in float32.</summary>
    public double[] Units { get; }

    /// <summary>The outputs of torch in float64.</summary>
    public double[] Exact { get; }

    public static NetworkFixture Read(string name) => new(name);

    /// <summary>The scores of torch.</summary>
    public float[] Scores => _arrays["scores"].ToSingle();

    /// <summary>The weights; each test may change its own.</summary>
    public Dictionary<string, Tensor> Weights() => _arrays
        .Where(pair => pair.Key.StartsWith("weights.", StringComparison.Ordinal))
        .ToDictionary(pair => pair.Key["weights.".Length..], pair => pair.Value, StringComparer.Ordinal);

    public INetwork Create(VectorWidth? width = null) => Create(Weights(), width);

    public INetwork Create(Dictionary<string, Tensor> weights, VectorWidth? width = null) =>
        NetworkFactory.Create(JsonRecord.Parse(_settings, _name).Record("network"), Sizes, Target, Levels, weights, width);

    /// <summary>Creates the network after a change of its settings' text.</summary>
    public INetwork CreateChanged(string from, string to)
    {
        var text = System.Text.Encoding.UTF8.GetString(_settings);
        Assert.Contains(from, text, StringComparison.Ordinal);
        var changed = System.Text.Encoding.UTF8.GetBytes(text.Replace(from, to, StringComparison.Ordinal));
        return NetworkFactory.Create(JsonRecord.Parse(changed, _name).Record("network"), Sizes, Target, Levels, Weights());
    }

    /// <summary>An array of Python's explanation.</summary>
    public Tensor Explanation(string name) => _arrays[$"explanation.{name}"];

    /// <summary>Whether an array of Python's explanation exists.</summary>
    public bool HasExplanation(string name) => _arrays.ContainsKey($"explanation.{name}");

    /// <summary>The inputs that the forecast of one row depends on.</summary>
    public NetworkInputs RowOf(int row, INetwork? network = null) => InputRows.WindowOf(
        Inputs, row, (network as IPanelNetwork)?.Neighbours, (Sizes.EncoderLength + Sizes.FutureLength) * Sizes.Known);

    /// <summary>Explains forecasts of a network with the offsets and the baseline of Python's explanation.</summary>
    public IExplainer CreateExplainer(INetwork network)
    {
        var output = new OutputMap(Target.Spread(), [.. Explanation("offsets").ToDouble().Chunk(Levels.Length)], Levels);
        var baseline = new Baseline(
            "train_mean", Explanation("known_baseline").ToSingle(), Explanation("static_baseline").ToSingle(),
            Explanation("location_baseline").ToDouble(), Explanation("scale_baseline").ToDouble());
        return network is TreesNetwork trees
            ? new TreeExplainer(trees, output, baseline)
            : new GradientExplainer((IDifferentiableNetwork)network, output, baseline);
    }

    /// <summary>The inputs again and again, in this many rows; of a graph network, in whole panels.</summary>
    public NetworkInputs Repeated(int count)
    {
        var isPanel = Inputs.Nodes.Length > 0;
        var rows = isPanel ? (count + Inputs.Rows - 1) / Inputs.Rows * Inputs.Rows : count;
        return new NetworkInputs
        {
            Rows = rows,
            Observed = Repeat(Inputs.Observed, rows),
            Known = Repeat(Inputs.Known, rows),
            Static = Repeat(Inputs.Static, rows),
            Mask = Repeat(Inputs.Mask, rows),
            Location = Repeat(Inputs.Location, rows),
            Scale = Repeat(Inputs.Scale, rows),
            Nodes = Repeat(Inputs.Nodes, rows),
            Panels = isPanel ? rows / Inputs.Rows : 1,
        };
    }

    public double[] Run(INetwork network, NetworkInputs inputs)
    {
        var units = new double[inputs.Rows * Target.Horizons.Length * Levels.Length];
        network.Run(inputs, units);
        return units;
    }

    private T[] Repeat<T>(T[] values, int rows)
    {
        var one = values.Length / Inputs.Rows;
        return [.. Enumerable.Range(0, rows * one).Select(k => values[k % values.Length])];
    }
}
