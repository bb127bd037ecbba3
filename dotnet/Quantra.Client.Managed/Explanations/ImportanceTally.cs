namespace Quantra.Client.Managed;

/// <summary>Accumulates the explanations of many instances, one instance at a time.</summary>
internal sealed class ImportanceTally(IForecastModel model, int total)
{
    /// <summary>Refusals that a report lists; further ones are only counted.</summary>
    private const int MostRefusals = 10;

    private readonly List<ExplanationRefusal> _refusals = [];
    private TargetSums[] _targets = [];
    private int _done;
    private int _refused;
    private int _refusedSymbols;

    /// <summary>Adds the explanations of the next instance, one per target.</summary>
    public void Add(Attribution[] attributions)
    {
        if (_targets.Length == 0)
            _targets = Array.ConvertAll(attributions, attribution => new TargetSums(attribution));
        foreach (var (sums, attribution) in _targets.Zip(attributions))
            sums.Add(attribution);
        foreach (var (symbol, error) in attributions[0].Refusals)
            List(symbol, error);
        _refusedSymbols += attributions[0].Refusals.Count;
        _done++;
    }

    /// <summary>Counts the next instance as one that could not be explained.</summary>
    public void Refuse(QuantraError error)
    {
        List("", error);
        _refused++;
        _done++;
    }

    /// <summary>The global explanation so far.</summary>
    public GlobalExplanationProgress Report() => new()
    {
        Model = model.Name,
        Version = model.Version,
        WeightsHash = model.WeightsHash,
        Targets = Array.ConvertAll(_targets, sums => sums.Importance()),
        Done = _done,
        Total = total,
        Refused = _refused,
        RefusedSymbols = _refusedSymbols,
        Refusals = [.. _refusals],
    };

    private void List(string symbol, QuantraError error)
    {
        if (_refusals.Count < MostRefusals)
            _refusals.Add(new(_done, symbol, error));
    }

    /// <summary>Sums over instances for one target; each instance has n windows, whose absolute contributions add up to s [R].</summary>
    private sealed class TargetSums(Attribution first)
    {
        private readonly double[] _sizes = new double[first.RowNames.Count];
        private readonly double[] _squares = new double[first.RowNames.Count];
        private readonly double[] _products = new double[first.RowNames.Count];
        private int _instances;
        private long _windows;
        private long _squaredWindows;
        private long _converged;

        public void Add(Attribution attribution)
        {
            var (sizes, rows, windows) = (new double[_sizes.Length], _sizes.Length, 0);
            var perRow = attribution.PerRow.Span;
            for (var symbol = 0; symbol < attribution.Prediction.Length; symbol++)
            {
                if (!double.IsFinite(attribution.Prediction.Span[symbol]))
                    continue;
                windows++;
                _converged += attribution.Converged[symbol] ? 1 : 0;
                for (var row = 0; row < rows; row++)
                    sizes[row] += Math.Abs(perRow[(symbol * rows) + row]);
            }

            for (var row = 0; row < rows; row++)
            {
                _sizes[row] += sizes[row];
                _squares[row] += sizes[row] * sizes[row];
                _products[row] += sizes[row] * windows;
            }

            _instances++;
            _windows += windows;
            _squaredWindows += (long)windows * windows;
        }

        public TargetImportance Importance()
        {
            double[] means = Array.ConvertAll(_sizes, size => size / _windows);
            return new()
            {
                Horizon = first.Horizon,
                Quantile = first.Quantile,
                Unit = first.Unit,
                RowNames = first.RowNames,
                RowKinds = first.RowKinds,
                MeanSize = means,
                StandardError = means.Select(ComputeStandardError).ToArray(),
                Windows = _windows,
                Converged = (double)_converged / _windows,
            };
        }

        /// <summary>Standard error of a ratio of sums over instances (Cochran 1977, "Sampling techniques", 6.4); NaN for a single instance.</summary>
        private double ComputeStandardError(double mean, int row)
        {
            if (_instances == 1)
                return double.NaN;
            var squares = _squares[row] - (2 * mean * _products[row]) + (mean * mean * _squaredWindows); // of s - mean n, summed
            return Math.Sqrt(Math.Max(squares, 0) * _instances / (_instances - 1)) / _windows;
        }
    }
}
