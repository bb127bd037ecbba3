using System.Collections.Concurrent;

namespace Quantra.Client.Managed;

/// <summary>A quadrature rule on (0, 1), exact for polynomials of degree 2 count - 1.</summary>
/// <param name="Positions">[count] ascending.</param>
/// <param name="Weights">[count] with sum 1.</param>
/// <param name="Highest">[count] factors of weighted values for the coefficient of the highest Legendre polynomial that the nodes resolve.</param>
internal sealed record GaussLegendre(double[] Positions, double[] Weights, double[] Highest)
{
    private static readonly ConcurrentDictionary<int, GaussLegendre> Rules = new();

    /// <summary>Numbers of nodes in the order to try.</summary>
    public static int[] NodeCounts { get; } = [3, 6, 12, 24, 48, 96, 192, 384];

    /// <summary>The rule with this many nodes.</summary>
    public static GaussLegendre Of(int count) => Rules.GetOrAdd(count, Compute);

    /// <summary>Largest coefficient of the highest degree, relative to the mean, for which the mean is within the tolerance.</summary>
    /// <remarks>The coefficients of a smooth function decay like powers of some r; with n nodes, the highest is r^(n - 1) and the error r^(2 n).</remarks>
    public static double LimitRoughness(int count, double tolerance) => Math.Pow(tolerance, (count - 1) / (2.0 * count));

    private static GaussLegendre Compute(int count)
    {
        var rule = new GaussLegendre(new double[count], new double[count], new double[count]);
        for (var k = 0; k < count; k++)
        {
            var x = -Math.Cos(Math.PI * (k + 0.75) / (count + 0.5));
            var (slope, before) = (0.0, 0.0);
            for (var step = 0; step < 8; step++)
            {
                var (last, value) = Legendre(count, x);
                (slope, before) = (count * ((x * value) - last) / ((x * x) - 1), last);
                x -= step < 7 ? value / slope : 0;
            }

            rule.Positions[k] = (x + 1) / 2;
            rule.Weights[k] = 1 / ((1 - (x * x)) * slope * slope);
            rule.Highest[k] = ((2 * count) - 1) * before;
        }

        return rule;
    }

    /// <summary>The Legendre polynomials of degree count - 1 and count.</summary>
    private static (double Last, double Value) Legendre(int count, double x)
    {
        var (last, value) = (1.0, x);
        for (var k = 2; k <= count; k++)
            (last, value) = (value, ((((2 * k) - 1) * x * value) - ((k - 1) * last)) / k);
        return (last, value);
    }
}
