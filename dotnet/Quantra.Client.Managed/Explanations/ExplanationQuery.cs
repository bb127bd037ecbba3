namespace Quantra.Client.Managed;

/// <summary>A request for explanations whose targets and numbers have been checked.</summary>
/// <param name="Targets">The targets, by default the medians of all horizons.</param>
/// <param name="Points">Indices of horizon and quantile of each target.</param>
/// <param name="Request">The request.</param>
internal sealed record ExplanationQuery(ExplanationTarget[] Targets, (int Horizon, int Quantile)[] Points, ManyExplanationsRequest Request)
{
    private const int MostTargets = 256;
    private const int MostSymbols = 10_000;
    private const int MostRows = 5_000_000;
    private const double LeastTolerance = 1e-4;
    private const double SameLevel = 1e-9;

    /// <summary>Largest relative gap unless a request has another.</summary>
    public const double DefaultTolerance = 0.01;

    /// <summary>Largest relative gap that counts as converged.</summary>
    public double Tolerance => Request.Tolerance == 0 ? DefaultTolerance : Request.Tolerance;

    /// <summary>The requested detail, in words.</summary>
    public string Detail => Request.Detail switch
    {
        ExplanationDetail.Times => "times",
        ExplanationDetail.Cells => "cells",
        _ => "features",
    };

    /// <summary>Checks what does not depend on the bars.</summary>
    /// <exception cref="QuantraException">The request is too large, or a target is not the model's.</exception>
    public static ExplanationQuery Read(ManyExplanationsRequest request, int[] horizons, double[] levels)
    {
        CheckNumbers(request.Targets.Count, request.Tolerance);
        CheckCount("symbols", request.Symbols.Count, MostSymbols);
        var median = levels[QuantileHead<Wide128>.AnchorOf(levels)];
        ExplanationTarget[] targets = request.Targets.Count > 0 ? [.. request.Targets] : Array.ConvertAll(horizons, horizon => new ExplanationTarget(horizon, median));
        return new(targets, Array.ConvertAll(targets, target => IndexOf(target, horizons, levels)), request);
    }

    /// <exception cref="QuantraException">REQUEST_TOO_LARGE</exception>
    public static void CheckCount(string what, int have, int most)
    {
        if (have > most)
            throw TooLarge($"{what}: have {have}, at most {most} in one request; send several requests", ("field", what), ("have", $"{have}"), ("most", $"{most}"));
    }

    /// <summary>Checks the number of targets and the tolerance.</summary>
    /// <exception cref="QuantraException">There are too many targets, or the tolerance is out of range.</exception>
    public static void CheckNumbers(int targets, double tolerance)
    {
        CheckCount("targets", targets, MostTargets);
        if (tolerance != 0 && !(tolerance >= LeastTolerance && tolerance < 1))
        {
            throw PredictionError.Malformed(
                $"tolerance: {NumberText.General(tolerance)} is out of range; use a value from {NumberText.General(LeastTolerance)} to below 1, which float32 can resolve, or 0 for the default {NumberText.General(DefaultTolerance)}",
                ("field", "tolerance"),
                ("value", NumberText.Exact(tolerance))).ToException();
        }
    }

    /// <summary>The requested method; by default, the first one.</summary>
    /// <exception cref="QuantraException">EXPLAIN_UNSUPPORTED: the model does not have it.</exception>
    public string ChooseMethod(string[] supported) => Request.Method.Length == 0
        ? supported[0]
        : supported.Contains(Request.Method, StringComparer.Ordinal)
            ? Request.Method
            : throw PredictionError.Of(
                QuantraStatus.Unimplemented,
                QuantraReason.ExplainUnsupported,
                $"unknown method {PythonText.Quote(Request.Method)}; the model supports {PythonText.List(supported)}").ToException();

    /// <summary>Rejects a request that could take too long.</summary>
    /// <param name="networks">Networks that are explained.</param>
    /// <param name="forecasts">Forecasts of a window that the method needs; 0 for methods whose cost depends on the targets.</param>
    /// <exception cref="QuantraException">REQUEST_TOO_LARGE</exception>
    public void CheckCost(int networks, int forecasts)
    {
        var symbols = Request.Symbols.Count > 0 ? Request.Symbols.Count : (Request.Instance.Bars?.Symbols ?? Request.Instance.Window!.Symbols).Count;
        var targets = Points.Distinct().Count();
        var rows = (long)symbols * networks * (forecasts > 0 ? forecasts : targets * GaussLegendre.NodeCounts.Sum());
        if (rows > MostRows)
        {
            throw TooLarge(
                $"explaining {targets} targets of {symbols} symbols may take {rows} rows of the network, more than the limit of {MostRows} per request; ask for fewer targets or symbols",
                ("have", $"{rows}"),
                ("most", $"{MostRows}"));
        }
    }

    /// <summary>The error of a request that is too large.</summary>
    public static QuantraException TooLarge(string message, params ReadOnlySpan<(string Name, string Value)> metadata) =>
        PredictionError.Of(QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge, message, metadata).ToException();

    private static (int Horizon, int Quantile) IndexOf(ExplanationTarget target, int[] horizons, double[] levels)
    {
        var horizon = Array.IndexOf(horizons, target.Horizon);
        if (horizon < 0)
        {
            throw PredictionError.Of(
                QuantraStatus.InvalidArgument,
                QuantraReason.UnknownHorizon,
                FormattableString.Invariant($"horizon {target.Horizon} is not forecast; the model has {PythonText.List(horizons)}")).ToException();
        }

        var quantile = Array.FindIndex(levels, level => Math.Abs(level - target.Quantile) < SameLevel);
        return quantile >= 0
            ? (horizon, quantile)
            : throw PredictionError.Of(
                QuantraStatus.InvalidArgument,
                QuantraReason.UnknownQuantile,
                $"quantile {NumberText.General(target.Quantile)} is not forecast; the model has [{string.Join(", ", levels.Select(NumberText.Exact))}]").ToException();
    }
}
