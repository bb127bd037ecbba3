using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Computes location and scale of windows from the daily series up to the last session.</summary>
internal interface INormaliser
{
    /// <summary>Number of sessions that it reads (W).</summary>
    int Window { get; }

    /// <summary>Whether each horizon has its own levels; otherwise all share one location and scale.</summary>
    bool IsPerHorizon { get; }

    /// <summary>The smallest scale, for windows with constant prices.</summary>
    double Floor { get; }

    /// <summary>Computes the levels of the windows that end on the last session.</summary>
    /// <param name="bars">Bars of S symbols.</param>
    /// <param name="location">[S, H] NaN without known values.</param>
    /// <param name="scale">[S, H] positive; NaN without known values.</param>
    /// <param name="known">[S] known values of each window.</param>
    void Levels(AdjustedBars bars, Span<double> location, Span<double> scale, Span<int> known);

    /// <summary>Intermediate results of one symbol by name, to compare implementations.</summary>
    IReadOnlyList<(string Name, double[] Values)> Stages(AdjustedBars bars, int symbol);
}

/// <summary>Reads normalisers, and computes what their kinds share.</summary>
internal static class Normaliser
{
    /// <summary>Reads the manifest's entry.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: the kind or a setting is unknown, missing or invalid.</exception>
    public static INormaliser Read(JsonRecord record, Target target)
    {
        var kind = record.Text("kind");
        INormaliser normaliser = kind switch
        {
            "window" => WindowNormaliser.Read(record, target),
            "fitted" => FittedNormaliser.Read(record, target),
            _ => throw record.Refusal("kind", $"is '{kind}', but must be 'window' or 'fitted'"),
        };
        record.End();
        return normaliser;
    }

    /// <summary>Checks the number of sessions and the floor.</summary>
    public static void Check(JsonRecord record, int window, int least, double floor)
    {
        const int mostSessions = 2500;
        if (window < least || window > mostSessions)
            throw record.Refusal("window", $"is {window}, but must be {least} to {mostSessions}");
        if (!(floor > 0 && floor < 1))
            throw record.Refusal("floor", $"is {floor}, but must be between 0 and 1");
    }

    /// <summary>The number of finite values.</summary>
    public static int CountFinite(ReadOnlySpan<double> series)
    {
        var count = 0;
        foreach (var value in series)
            count += double.IsFinite(value) ? 1 : 0;
        return count;
    }

    /// <summary>The value, but at least the floor; NaN stays.</summary>
    public static double AtLeast(double value, double floor) => double.IsNaN(value) ? value : Math.Max(value, floor);

    /// <summary>The mean size of the known values, added from the oldest; NaN if none is known.</summary>
    /// <param name="values">The values.</param>
    /// <param name="above">Sizes that are not above this number do not count.</param>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static double ComputeMeanSize(ReadOnlySpan<double> values, double above = -1)
    {
        double sum = 0, count = 0;
        foreach (var value in values)
        {
            var size = Math.Abs(value);
            if (size > above)
                (sum, count) = (sum + size, count + 1);
        }
        return sum / count;
    }
}
