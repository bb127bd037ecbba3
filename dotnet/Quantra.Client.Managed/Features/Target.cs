using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>The quantity that a model forecasts.</summary>
internal enum TargetKind
{
    /// <summary>log(close[t + lag + h] / close[t + lag])</summary>
    LogReturn,

    /// <summary>log of the daily volatility over the h sessions after t + lag, by Parkinson's estimator (1980).</summary>
    LogVolatility,
}

/// <summary>The target of a forecast: a kind over horizons of h sessions that start `Lag` sessions after the last bar.</summary>
/// <param name="Kind">The quantity.</param>
/// <param name="Lag">0 or 1.</param>
/// <param name="Horizons">Trading days, ascending.</param>
internal sealed record Target(TargetKind Kind, int Lag, int[] Horizons)
{
    private const int MaxHorizon = 250;
    private const double SmallestVariance = 1e-10;

    /// <summary>Daily volatility of sessions without a range: 1e-5 of the price.</summary>
    public static readonly double SmallestRangeVolatility = Math.Sqrt(SmallestVariance);

    /// <summary>Name of the kind in artifacts.</summary>
    public string KindName => Kind == TargetKind.LogReturn ? "log-return" : "log-volatility";

    /// <summary>Sessions between the last bar and the end of the longest horizon.</summary>
    public int Reach => Lag + Horizons[^1];

    /// <summary>Reads a target from a manifest.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a key is missing, unknown or invalid.</exception>
    public static Target Read(JsonRecord record)
    {
        TargetKind kind = record.Text("kind") switch
        {
            "log-return" => TargetKind.LogReturn,
            "log-volatility" => TargetKind.LogVolatility,
            var other => throw record.Refusal("kind", $"is '{other}', but must be 'log-return' or 'log-volatility'"),
        };
        var target = new Target(kind, record.Integer("lag"), record.Integers("horizons"));
        record.End();
        if (target.Lag is not (0 or 1))
            throw record.Refusal("lag", $"is {target.Lag}, but must be 0 or 1");
        var horizons = target.Horizons;
        var rising = Enumerable.Range(1, Math.Max(0, horizons.Length - 1)).All(k => horizons[k - 1] < horizons[k]);
        if (horizons.Length == 0 || !rising || horizons[0] < 1 || horizons[^1] > MaxHorizon)
            throw record.Refusal("horizons", $"must be ascending numbers of days from 1 to {MaxHorizon}");
        return target;
    }

    /// <summary>Growth of the target's scale with each horizon: sqrt(h) for returns, 1 for volatility.</summary>
    public double[] Spread() => Array.ConvertAll(Horizons, days => Kind == TargetKind.LogReturn ? Math.Sqrt(days) : 1.0);

    /// <summary>Index of the session that each horizon ends on, among the encoder's sessions and those that follow.</summary>
    public int[] FindEnds(int encoderLength) => Array.ConvertAll(Horizons, days => encoderLength - 1 + Lag + days);

    /// <summary>The session that each horizon ends on.</summary>
    /// <param name="following">The sessions after the last bar.</param>
    public DateOnly[] Sessions(ReadOnlySpan<int> following)
    {
        var sessions = new DateOnly[Horizons.Length];
        for (var horizon = 0; horizon < sessions.Length; horizon++)
            sessions[horizon] = Day.ToDate(following[Lag + Horizons[horizon] - 1]);
        return sessions;
    }

    /// <summary>The session that horizons count from.</summary>
    public DateOnly FindBaseSession(int asOf, ReadOnlySpan<int> following) => Day.ToDate(Lag > 0 ? following[Lag - 1] : asOf);

    /// <summary>The daily series whose recent level and volatility normalise the target, at some sessions of a symbol.</summary>
    /// <param name="bars">The bars.</param>
    /// <param name="symbol">Index of the symbol.</param>
    /// <param name="series">The values of the last sessions; NaN where unknown, also before the first session.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public void Daily(AdjustedBars bars, int symbol, Span<double> series)
    {
        var start = bars.Sessions - series.Length;
        for (var k = 0; k < series.Length; k++)
        {
            var place = (symbol * bars.Sessions) + start + k;
            if (Kind == TargetKind.LogReturn)
                series[k] = start + k < 1 ? double.NaN : Math.Log(bars.Close[place] / bars.Close[place - 1]);
            else
                series[k] = start + k < 0 ? double.NaN : Math.Log(Larger(ComputeParkinsonVariance(bars, place), SmallestVariance)) / 2;
        }
    }

    /// <summary>Daily volatility by Parkinson's estimator; the minimum for bars without a range, NaN without a bar.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static void ComputeRangeVolatility(AdjustedBars bars, int symbol, Span<double> series)
    {
        var start = bars.Sessions - series.Length;
        for (var k = 0; k < series.Length; k++)
        {
            var place = (symbol * bars.Sessions) + start + k;
            series[k] = start + k < 0 ? double.NaN : Math.Sqrt(Larger(ComputeParkinsonVariance(bars, place), SmallestVariance));
        }
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static double ComputeParkinsonVariance(AdjustedBars bars, int place)
    {
        var log = Math.Log(bars.High[place] / bars.Low[place]);
        return log * log / (4 * 0.6931471805599453);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static double Larger(double value, double least) => double.IsNaN(value) ? value : Math.Max(value, least);
}
