namespace Quantra.Client.Managed;

/// <summary>Statistics as NumPy computes them.</summary>
internal static class PathStatistics
{
    /// <summary>A quantile of sorted numbers, interpolated linearly.</summary>
    public static double Quantile(ReadOnlySpan<double> sorted, double level)
    {
        var place = level * (sorted.Length - 1);
        var lower = (int)Math.Floor(place);
        if (lower >= sorted.Length - 1)
            return sorted[^1];
        var (share, difference) = (place - lower, sorted[lower + 1] - sorted[lower]);
        return share < 0.5 ? sorted[lower] + (difference * share) : sorted[lower + 1] - (difference * (1 - share));
    }

    /// <summary>The mean.</summary>
    public static double Mean(ReadOnlySpan<double> values)
    {
        var sum = 0.0;
        foreach (var value in values)
            sum += value;
        return sum / values.Length;
    }

    /// <summary>The value of a piecewise linear function through points with ascending <paramref name="known"/> places.</summary>
    public static double Interpolate(double place, ReadOnlySpan<double> known, ReadOnlySpan<double> values)
    {
        var next = 0;
        while (next < known.Length && known[next] <= place)
            next++;
        if (next == 0)
            return values[0];
        if (next == known.Length)
            return values[^1];
        var slope = (values[next] - values[next - 1]) / (known[next] - known[next - 1]);
        return (slope * (place - known[next - 1])) + values[next - 1];
    }
}
