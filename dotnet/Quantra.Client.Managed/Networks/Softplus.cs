namespace Quantra.Client.Managed;

/// <summary>log(1 + e^x) in float64 by polynomials, within 1e-15.</summary>
internal static class Softplus
{
    private static readonly double[] Factorials = ReciprocalFactorials(16);

    /// <summary>log(1 + e^x)</summary>
    public static double Of(double x) => Math.Max(x, 0.0) + LogOnePlus(ExpOfNegative(-Math.Abs(x)));

    /// <summary>The derivative, 1 / (1 + e^-x).</summary>
    public static double Slope(double x)
    {
        var power = ExpOfNegative(-Math.Abs(x));
        return (x < 0 ? power : 1.0) / (1.0 + power);
    }

    /// <summary>e^x for x up to 0.</summary>
    private static double ExpOfNegative(double x)
    {
        if (x < -700)
            return 0.0;
        var whole = Math.Round(x * 1.4426950408889634);
        var rest = Math.FusedMultiplyAdd(whole, -0.6931471803691238, x);
        rest = Math.FusedMultiplyAdd(whole, -1.9082149292705877e-10, rest);
        var sum = Factorials[^1];
        for (var k = Factorials.Length - 2; k >= 0; k--)
            sum = Math.FusedMultiplyAdd(sum, rest, Factorials[k]);
        return sum * BitConverter.Int64BitsToDouble(((long)whole + 1023) << 52);
    }

    /// <summary>log(1 + x) for x from 0 to 1, as 2 artanh(x / (2 + x)).</summary>
    private static double LogOnePlus(double x)
    {
        var ratio = x / (2.0 + x);
        var square = ratio * ratio;
        var sum = 0.0;
        for (var k = 35; k >= 1; k -= 2)
            sum = Math.FusedMultiplyAdd(sum, square, 1.0 / k);
        return 2.0 * ratio * sum;
    }

    private static double[] ReciprocalFactorials(int count)
    {
        var values = new double[count];
        var factorial = 1.0;
        for (var k = 0; k < count; k++)
        {
            values[k] = 1.0 / factorial;
            factorial *= k + 1;
        }
        return values;
    }
}
