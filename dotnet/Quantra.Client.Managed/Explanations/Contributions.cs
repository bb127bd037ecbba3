namespace Quantra.Client.Managed;

/// <summary>Signed contributions to one number of one window's forecast, in the target's unit.</summary>
/// <remarks>They add up to Prediction - BaselinePrediction within RelativeGap.</remarks>
internal sealed record Contributions
{
    /// <summary>Smallest denominator of a relative gap, in units of the window's volatility over the horizon.</summary>
    public const double GapFloor = 0.05;

    /// <summary>[T, F], or [1, F] if the method does not tell sessions apart.</summary>
    public required double[] Observed { get; init; }

    /// <summary>[T + D, K], or [1, K]</summary>
    public required double[] Known { get; init; }

    /// <summary>[C]</summary>
    public required double[] Static { get; init; }

    public required double Location { get; init; }

    public required double Scale { get; init; }

    /// <summary>Sum over all conformal offsets.</summary>
    public required double Conformal { get; init; }

    /// <summary>Sum over all inputs of the other stocks that the forecast depends on.</summary>
    public double Neighbours { get; init; }

    public required double Prediction { get; init; }

    /// <summary>The forecast at the baseline, with the window's mask.</summary>
    public required double BaselinePrediction { get; init; }

    /// <summary>|sum - difference| / max(|difference|, floor)</summary>
    public double RelativeGap { get; init; }

    /// <summary>Whether the gap is within the tolerance.</summary>
    public bool Converged { get; init; }

    /// <summary>Nodes of the quadrature, orders of the features, or hidden features.</summary>
    public required int Nodes { get; init; }

    /// <summary>Sum of all contributions.</summary>
    public double Total => Observed.Sum() + Known.Sum() + Static.Sum() + Location + Scale + Conformal + Neighbours;

    /// <summary>The same contributions with their gap.</summary>
    /// <param name="unit">The window's volatility over the horizon.</param>
    /// <param name="tolerance">Largest relative gap that counts as converged.</param>
    public Contributions AddGap(double unit, double tolerance)
    {
        var difference = Prediction - BaselinePrediction;
        var gap = Math.Abs(Total - difference) / Math.Max(Math.Abs(difference), GapFloor * unit);
        return this with { RelativeGap = gap, Converged = gap <= tolerance };
    }
}

/// <summary>Explains forecasts of one model. Thread-safe.</summary>
internal interface IExplainer
{
    /// <summary>Name of the method.</summary>
    string Method { get; }

    /// <summary>Name of the baseline.</summary>
    string BaselineName { get; }

    /// <summary>Forecasts of a window that an explanation of all its targets needs; 0 for methods whose cost depends on the targets.</summary>
    int Forecasts { get; }

    /// <summary>Explains some numbers of one window's forecast.</summary>
    /// <param name="window">Inputs of one row.</param>
    /// <param name="points">Indices of horizon and quantile, without repetition.</param>
    /// <param name="tolerance">Largest relative gap that counts as converged.</param>
    /// <param name="nodeCounts">Numbers of quadrature nodes in the order to try.</param>
    /// <param name="limit">Checked between forward passes.</param>
    /// <returns>Contributions to each point.</returns>
    /// <exception cref="QuantraException">INVALID_INPUT: a forecast is not finite.</exception>
    Contributions[] Explain(NetworkInputs window, (int Horizon, int Quantile)[] points, double tolerance, int[] nodeCounts, CallLimit limit);
}
