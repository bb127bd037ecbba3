namespace Quantra.Desktop.Charts;

/// <summary>From values to pixels, along one axis.</summary>
/// <param name="Lowest">The value at <paramref name="From"/>.</param>
/// <param name="Highest">The value at <paramref name="To"/>; larger.</param>
/// <param name="From">Pixels.</param>
/// <param name="To">Pixels.</param>
internal readonly record struct ValueScale(double Lowest, double Highest, double From, double To)
{
    /// <summary>A scale over all of the values, and a little beyond.</summary>
    public static ValueScale Over(IEnumerable<double> values, double from, double to)
    {
        var (lowest, highest) = (double.PositiveInfinity, double.NegativeInfinity);
        foreach (var value in values.Where(double.IsFinite))
            (lowest, highest) = (Math.Min(lowest, value), Math.Max(highest, value));
        var room = Math.Max((highest - lowest) * 0.05, Math.Abs(highest) * 1e-6 + 1e-12);
        return new(lowest - room, highest + room, from, to);
    }

    /// <summary>Where a value is.</summary>
    public double At(double value) => From + ((value - Lowest) / (Highest - Lowest) * (To - From));

    /// <summary>Round numbers within the scale.</summary>
    /// <param name="most">How many at most, at least 2.</param>
    public IEnumerable<double> Ticks(int most)
    {
        var step = RoundStep((Highest - Lowest) / most);
        for (var tick = Math.Ceiling(Lowest / step); tick * step <= Highest; tick++)
            yield return tick * step;
    }

    /// <summary>1, 2 or 5 times a power of ten, not below the width.</summary>
    private static double RoundStep(double width)
    {
        var power = Math.Pow(10, Math.Floor(Math.Log10(width)));
        return power * (width / power) switch { <= 1 => 1, <= 2 => 2, <= 5 => 5, _ => 10 };
    }
}
