namespace Quantra.Desktop.Charts;

/// <summary>Maps values to pixels along an axis.</summary>
/// <param name="Lowest">The value at <paramref name="From"/>.</param>
/// <param name="Highest">The value at <paramref name="To"/>, larger than Lowest.</param>
/// <param name="From">First pixel.</param>
/// <param name="To">Last pixel.</param>
internal readonly record struct ValueScale(double Lowest, double Highest, double From, double To)
{
    /// <summary>Creates a scale over the values with a small margin.</summary>
    public static ValueScale Over(IEnumerable<double> values, double from, double to)
    {
        var (lowest, highest) = (double.PositiveInfinity, double.NegativeInfinity);
        foreach (var value in values.Where(double.IsFinite))
            (lowest, highest) = (Math.Min(lowest, value), Math.Max(highest, value));
        var room = Math.Max((highest - lowest) * 0.05, Math.Abs(highest) * 1e-6 + 1e-12);
        return new(lowest - room, highest + room, from, to);
    }

    /// <summary>Returns the pixel of a value.</summary>
    public double At(double value) => From + ((value - Lowest) / (Highest - Lowest) * (To - From));

    /// <summary>Returns round numbers within the scale, at most as many as given, which must be 2 or more.</summary>
    public IEnumerable<double> Ticks(int most)
    {
        var step = RoundStep((Highest - Lowest) / most);
        for (var tick = Math.Ceiling(Lowest / step); tick * step <= Highest; tick++)
            yield return tick * step;
    }

    /// <summary>Returns the smallest 1, 2 or 5 times a power of ten that is not below the width.</summary>
    private static double RoundStep(double width)
    {
        var power = Math.Pow(10, Math.Floor(Math.Log10(width)));
        return power * (width / power) switch { <= 1 => 1, <= 2 => 2, <= 5 => 5, _ => 10 };
    }
}
