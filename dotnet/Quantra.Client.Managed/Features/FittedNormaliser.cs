namespace Quantra.Client.Managed;

/// <summary>Levels for each horizon, forecast by HAR (Corsi 2009), GARCH(1,1) (Bollerslev 1986) or both.</summary>
/// <remarks>
/// Returns have location 0 and as scale the daily volatility; log volatility has HAR's forecast as location and the size
/// of its training residuals as scale. Sums run from the oldest session and skip sessions without a value; HAR's
/// averages also skip bars without a range.
/// </remarks>
internal sealed class FittedNormaliser : INormaliser
{
    private readonly Target _target;
    private readonly HarTerms? _har;
    private readonly GarchTerms? _garch;
    private readonly double _harShare;
    private readonly double[] _residuals;

    private FittedNormaliser(Target target, JsonRecord record)
    {
        _target = target;
        Window = record.Integer("window");
        Floor = record.Number("floor");
        _har = record.Has("har") ? HarTerms.Read(record.Record("har"), target.Horizons.Length) : null;
        Normaliser.Check(record, Window, _har?.Sessions[^1] ?? 2, Floor);
        if (target.Kind == TargetKind.LogVolatility)
        {
            _residuals = record.Numbers("residuals");
            if (_har is null)
                throw record.Refusal("har", "is missing");
            if (_residuals.Length != target.Horizons.Length || !_residuals.All(size => size >= Floor))
                throw record.Refusal("residuals", "must be one number per horizon, none below the floor");
            return;
        }
        _residuals = [];
        _garch = record.Has("garch") ? GarchTerms.Read(record.Record("garch"), target.Horizons.Length, Window) : null;
        _harShare = record.Number("har_share");
        if (_har is null && _garch is null)
            throw record.Refusal("har", "and garch are both missing");
        var fits = _har is not null && _garch is not null ? _harShare is > 0 and < 1 : _harShare == (_har is null ? 0.0 : 1.0);
        if (!fits)
            throw record.Refusal("har_share", $"is {_harShare}, but must be 1 without GARCH, 0 without HAR, else in between");
    }

    /// <inheritdoc/>
    public int Window { get; }

    /// <inheritdoc/>
    public bool IsPerHorizon => true;

    /// <inheritdoc/>
    public double Floor { get; }

    /// <summary>Reads the settings; the kind was read before.</summary>
    public static FittedNormaliser Read(JsonRecord record, Target target) => new(target, record);

    /// <inheritdoc/>
    public void Levels(AdjustedBars bars, Span<double> location, Span<double> scale, Span<int> known)
    {
        var horizons = _target.Horizons.Length;
        Span<double> returns = stackalloc double[Window], volatility = stackalloc double[Window];
        for (var symbol = 0; symbol < bars.Symbols; symbol++)
        {
            ReadSeries(bars, symbol, returns, volatility);
            known[symbol] = Normaliser.CountFinite(_target.Kind == TargetKind.LogReturn ? returns : volatility);
            var har = _har?.Run(returns, volatility, _target.Kind);
            var garch = _garch?.Run(returns);
            for (var horizon = 0; horizon < horizons; horizon++)
            {
                var place = (symbol * horizons) + horizon;
                if (_target.Kind == TargetKind.LogVolatility)
                {
                    location[place] = har!.Logs[horizon];
                    scale[place] = double.IsFinite(location[place]) ? _residuals[horizon] : double.NaN;
                    continue;
                }
                var log = 0.0 + (har is null ? 0.0 : _harShare * har.Logs[horizon]);
                log += garch is null ? 0.0 : (1 - _harShare) * garch.Logs[horizon];
                scale[place] = Normaliser.AtLeast(Math.Exp(log), Floor);
                location[place] = double.IsNaN(scale[place]) ? double.NaN : 0.0;
            }
        }
    }

    /// <inheritdoc/>
    public IReadOnlyList<(string Name, double[] Values)> Stages(AdjustedBars bars, int symbol)
    {
        Span<double> returns = stackalloc double[Window], volatility = stackalloc double[Window];
        ReadSeries(bars, symbol, returns, volatility);
        List<(string, double[])> stages = [];
        if (_har?.Run(returns, volatility, _target.Kind) is { } har)
            stages.AddRange([("har_terms", har.Terms), ("har_level", [har.Level]), ("har", har.Logs)]);
        if (_garch?.Run(returns) is { } garch)
            stages.AddRange([("garch_level", [garch.Level]), ("garch_next", [garch.Next]), ("garch", garch.Logs)]);
        return stages;
    }

    private void ReadSeries(AdjustedBars bars, int symbol, Span<double> returns, Span<double> volatility)
    {
        if (_target.Kind == TargetKind.LogReturn)
            _target.Daily(bars, symbol, returns);
        if (_har is not null)
            Target.ComputeRangeVolatility(bars, symbol, volatility);
    }

    private sealed record HarResult(double[] Terms, double Level, double[] Logs);

    private sealed record GarchResult(double Level, double Next, double[] Logs);

    /// <summary>line = intercept + sum over k of weight_k log(mean of the last k values / mean of the window)</summary>
    private sealed record HarTerms(int[] Sessions, double[] Intercepts, double[][] Weights)
    {
        public static HarTerms Read(JsonRecord record, int horizons)
        {
            var har = new HarTerms(record.Integers("sessions"), record.Numbers("intercepts"), record.Rows("weights"));
            record.End();
            var sessions = har.Sessions;
            if (sessions.Length == 0 || sessions[0] < 1 || Enumerable.Range(1, sessions.Length - 1).Any(k => sessions[k - 1] >= sessions[k]))
                throw record.Refusal("sessions", "must be ascending numbers from at least 1");
            if (har.Weights.Length != horizons || har.Weights.Any(row => row.Length != sessions.Length))
                throw record.Refusal("weights", $"must be {horizons} rows of {sessions.Length} numbers");
            return har.Intercepts.Length == horizons
                ? har
                : throw record.Refusal("intercepts", $"must be {horizons} numbers, one per horizon");
        }

        public HarResult Run(ReadOnlySpan<double> returns, ReadOnlySpan<double> volatility, TargetKind kind)
        {
            var terms = ComputeTerms(volatility);
            var level = Normaliser.ComputeMeanSize(kind == TargetKind.LogReturn ? returns : volatility);
            var logs = new double[Intercepts.Length];
            for (var horizon = 0; horizon < logs.Length; horizon++)
            {
                var line = Intercepts[horizon];
                for (var k = 0; k < terms.Length; k++)
                    line += terms[k] * Weights[horizon][k];
                logs[horizon] = Math.Log(level) + line;
            }
            return new HarResult(terms, level, logs);
        }

        /// <summary>Logs of averages relative to the window's; 0 without any value.</summary>
        private double[] ComputeTerms(ReadOnlySpan<double> volatility)
        {
            var whole = Normaliser.ComputeMeanSize(volatility, Target.SmallestRangeVolatility);
            var terms = new double[Sessions.Length];
            for (var k = 0; k < terms.Length; k++)
            {
                var log = Math.Log(Normaliser.ComputeMeanSize(volatility[^Sessions[k]..], Target.SmallestRangeVolatility) / whole);
                terms[k] = double.IsNaN(log) ? 0.0 : log;
            }
            return terms;
        }
    }

    /// <summary>
    /// next = V + sum over k of alpha beta^k (squared return k sessions back - V); horizon = V + reversion (next - V)
    /// </summary>
    private sealed class GarchTerms
    {
        private readonly double[] _weights;
        private readonly double[] _reversion;

        private GarchTerms(double alpha, double beta, double[] reversion, int window)
        {
            _reversion = reversion;
            _weights = new double[window];
            _weights[^1] = alpha;
            for (var k = window - 2; k >= 0; k--)
                _weights[k] = _weights[k + 1] * beta;
        }

        public static GarchTerms Read(JsonRecord record, int horizons, int window)
        {
            var (alpha, beta, reversion) = (record.Number("alpha"), record.Number("beta"), record.Numbers("reversion"));
            record.End();
            if (!(alpha > 0 && beta >= 0 && alpha + beta < 1))
                throw record.Refusal("alpha", "must be above 0, beta at least 0 and their sum below 1");
            if (reversion.Length != horizons || !reversion.All(share => share is >= 0 and <= 1))
                throw record.Refusal("reversion", $"must be {horizons} numbers from 0 to 1, one per horizon");
            return new GarchTerms(alpha, beta, reversion, window);
        }

        public GarchResult Run(ReadOnlySpan<double> returns)
        {
            Span<double> squares = stackalloc double[returns.Length];
            for (var k = 0; k < squares.Length; k++)
                squares[k] = returns[k] * returns[k];
            var level = Normaliser.ComputeMeanSize(squares);
            var sum = 0.0;
            for (var k = 0; k < squares.Length; k++)
                sum += _weights[k] * (double.IsNaN(squares[k]) ? 0.0 : squares[k] - level);
            var next = level + sum;
            var logs = Array.ConvertAll(_reversion, share => Math.Log(level + (share * (next - level))) / 2);
            return new GarchResult(level, next, logs);
        }
    }
}
