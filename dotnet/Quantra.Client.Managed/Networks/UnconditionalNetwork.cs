namespace Quantra.Client.Managed;

/// <summary>The kinds "har" and "garch": quantiles are the head's bias, the same for every window; the scale is the forecast.</summary>
internal sealed class UnconditionalNetwork : IDifferentiableNetwork
{
    private readonly double[] _units;

    public UnconditionalNetwork(NetworkWeights weights, Target target, double[] levels)
    {
        var horizons = target.Horizons.Length;
        _ = weights.Take("head.weight", horizons, 0, levels.Length);
        var bias = weights.Take("head.bias", horizons, levels.Length);
        var anchor = QuantileHead<Wide128>.AnchorOf(levels);
        _units = new double[horizons * levels.Length];
        for (var start = 0; start < _units.Length; start += levels.Length)
            QuantileHead<Wide128>.Rise(bias.AsSpan(start, levels.Length), anchor, _units.AsSpan(start, levels.Length));
    }

    /// <inheritdoc/>
    public void Run(NetworkInputs inputs, Span<double> units)
    {
        for (var row = 0; row < inputs.Rows; row++)
            _units.CopyTo(units[(row * _units.Length)..]);
    }

    /// <inheritdoc/>
    public INetworkTrace Trace(NetworkInputs inputs) => new ConstantTrace(inputs, [.. Enumerable.Repeat(_units, inputs.Rows).SelectMany(units => units)]);

    /// <summary>Units that depend on no input.</summary>
    private sealed class ConstantTrace(NetworkInputs inputs, double[] units) : INetworkTrace
    {
        public double[] Units => units;

        public NetworkShares? Shares => null;

        public InputGradients Gradients(ReadOnlySpan<double> weights) =>
            new(new float[inputs.Observed.Length], new float[inputs.Known.Length], new float[inputs.Static.Length]);

        public void Dispose()
        {
        }
    }
}
