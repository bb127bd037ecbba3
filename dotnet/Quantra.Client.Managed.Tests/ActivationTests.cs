using System.Runtime.Intrinsics.X86;

namespace Quantra.Client.Managed.Tests;

/// <summary>Errors of the activations on [-10, 10] in units of the last place of float32; GELU absolute.</summary>
public sealed class ActivationTests
{
    private delegate Wide128 Function(Wide128 x);

    [Fact]
    public void The_exponential_is_within_one_unit() => AssertWithin(1.1, Activations<Wide128>.Exp, Math.Exp);

    [Fact]
    public void The_exponential_minus_one_is_within_two_units() => AssertWithin(2, Activations<Wide128>.ExpMinusOne, ExpMinusOne);

    [Fact]
    public void The_sigmoid_is_within_two_units() => AssertWithin(2.5, Activations<Wide128>.Sigmoid, x => 1 / (1 + Math.Exp(-x)));

    [Fact]
    public void The_hyperbolic_tangent_is_within_two_units() => AssertWithin(2.5, Activations<Wide128>.Tanh, Math.Tanh);

    [Fact]
    public void Elu_is_within_two_units() => AssertWithin(2, Activations<Wide128>.Elu, x => x > 0 ? x : ExpMinusOne(x));

    [Fact]
    public void Gelu_is_within_a_millionth()
    {
        foreach (var x in Points())
            Assert.InRange(Math.Abs(ValueOf(Activations<Wide128>.Gelu, x) - Gelu(x)), 0, 1e-6);
    }

    [Theory]
    [InlineData(0.0, 0.6931471805599453)]
    [InlineData(1.0, 1.3132616875182228)]
    [InlineData(-1.0, 0.31326168751822286)]
    [InlineData(-20.0, 2.061153620314381e-9)]
    [InlineData(40.0, 40.0)]
    [InlineData(-800.0, 0.0)]
    public void Softplus_is_exact_in_float64(double x, double expected) =>
        Assert.InRange(Math.Abs(Softplus.Of(x) - expected), 0, 1e-15 * Math.Max(1, expected));

    private static IEnumerable<float> Points() => Enumerable.Range(-20_000, 40_001).Select(k => k * 5e-4f);

    private static double ExpMinusOne(double x)
    {
        if (Math.Abs(x) > 0.5)
            return Math.Exp(x) - 1;
        double sum = 0, term = 1;
        for (var k = 1; k < 20; k++)
            sum += term *= x / k;
        return sum;
    }

    /// <summary>x times the normal distribution, integrated by Simpson's rule.</summary>
    private static double Gelu(double x)
    {
        const int steps = 200;
        double width = x / steps, sum = 0;
        for (var k = 0; k <= steps; k++)
            sum += (k is 0 or steps ? 1 : k % 2 == 1 ? 4 : 2) * Math.Exp(-(k * width) * (k * width) / 2);
        return x * (0.5 + (sum * width / 3 / Math.Sqrt(2 * Math.PI)));
    }

    private static float ValueOf(Function function, float x)
    {
        Span<float> lanes = stackalloc float[4];
        function(Wide128.Of(x)).Store(ref lanes[0], 0);
        return lanes[0];
    }

    private static void AssertWithin(double units, Function function, Func<double, double> exact)
    {
        if (!Fma.IsSupported)
            Assert.Skip("this processor has no AVX2");
        var worst = Points().Max(x =>
        {
            var expected = exact(x);
            var unit = Math.Abs((double)MathF.BitIncrement((float)Math.Abs(expected)) - (float)Math.Abs(expected));
            return expected == 0 ? 0 : Math.Abs(ValueOf(function, x) - expected) / unit;
        });
        Assert.InRange(worst, 0, units);
    }
}
