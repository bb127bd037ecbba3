namespace Quantra.Client.Managed;

/// <summary>The kinds "har" and "garch": quantiles are the head's bias, the same for every window; the scale is the forecast.</summary>
internal sealed class UnconditionalNetwork : INetwork
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
}
