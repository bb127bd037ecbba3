namespace Quantra.Client.Managed;

/// <summary>Exponentially weighted level and volatility of the target's daily series over one window.</summary>
/// <remarks>
/// Weights are powers of the decay by repeated multiplication, 1 for the newest session. Sums run from the oldest session
/// and skip sessions without a value.
/// </remarks>
internal sealed class WindowNormaliser : INormaliser
{
    private readonly Target _target;
    private readonly double[] _weights;
    private readonly bool _isCentred;

    private WindowNormaliser(Target target, int window, double decay, bool isCentred, double floor)
    {
        (_target, _isCentred, Floor) = (target, isCentred, floor);
        _weights = new double[window];
        _weights[^1] = 1.0;
        for (var k = window - 2; k >= 0; k--)
            _weights[k] = _weights[k + 1] * decay;
    }

    /// <inheritdoc/>
    public int Window => _weights.Length;

    /// <inheritdoc/>
    public bool IsPerHorizon => false;

    /// <inheritdoc/>
    public double Floor { get; }

    /// <summary>Reads the settings; the kind was read before.</summary>
    public static WindowNormaliser Read(JsonRecord record, Target target)
    {
        var (window, decay, floor) = (record.Integer("window"), record.Number("decay"), record.Number("floor"));
        Normaliser.Check(record, window, 2, floor);
        if (!(decay > 0 && decay <= 1))
            throw record.Refusal("decay", $"is {decay}, but must be above 0 and at most 1");
        return new WindowNormaliser(target, window, decay, record.Flag("centred"), floor);
    }

    /// <inheritdoc/>
    public void Levels(AdjustedBars bars, Span<double> location, Span<double> scale, Span<int> known)
    {
        Span<double> series = Window <= 512 ? stackalloc double[Window] : new double[Window];
        var horizons = _target.Horizons.Length;
        for (var symbol = 0; symbol < bars.Symbols; symbol++)
        {
            _target.Daily(bars, symbol, series);
            known[symbol] = Normaliser.CountFinite(series);
            var (level, spread) = ComputeLevels(series);
            location.Slice(symbol * horizons, horizons).Fill(level);
            scale.Slice(symbol * horizons, horizons).Fill(spread);
        }
    }

    /// <inheritdoc/>
    public IReadOnlyList<(string Name, double[] Values)> Stages(AdjustedBars bars, int symbol) => [];

    private (double Location, double Scale) ComputeLevels(ReadOnlySpan<double> series)
    {
        double total = 0, sum = 0;
        for (var k = 0; k < series.Length; k++)
        {
            var weight = double.IsNaN(series[k]) ? 0.0 : _weights[k];
            total += weight;
            sum += double.IsNaN(series[k]) ? 0.0 : weight * series[k];
        }
        var location = _isCentred ? sum / total : 0.0 * total / total;
        double squares = 0;
        for (var k = 0; k < series.Length; k++)
        {
            if (double.IsNaN(series[k]))
                continue;
            var deviation = series[k] - location;
            squares += _weights[k] * (deviation * deviation);
        }
        return (location, Normaliser.AtLeast(Math.Sqrt(squares / total), Floor));
    }
}
