using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>
/// Functions of float32 vectors as polynomials, so that every machine computes the same bits.
/// </summary>
/// <remarks>
/// Largest error on [-10, 10] against exact values, in units of the last place: see ActivationTests, which measures them.
/// The polynomial of e^r is that of Cephes (S. Moshier).
/// </remarks>
internal static class Activations<TVector>
    where TVector : struct, IVector<TVector>
{
    private const float Largest = 87f;

    /// <summary>e^x, for x limited to [-87, 87].</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector Exp(TVector x)
    {
        Split(x, out var power, out var rest);
        return TVector.MultiplyAdd(power, rest, power);
    }

    /// <summary>e^x - 1, accurate near 0, for x limited to [-87, 87].</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector ExpMinusOne(TVector x)
    {
        Split(x, out var power, out var rest);
        return TVector.MultiplyAdd(power, rest, power - TVector.Of(1f));
    }

    /// <summary>1 / (1 + e^-x)</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector Sigmoid(TVector x)
    {
        var one = TVector.Of(1f);
        return one / (one + Exp(TVector.Of(0f) - x));
    }

    /// <summary>Hyperbolic tangent.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector Tanh(TVector x)
    {
        var falling = ExpMinusOne(TVector.Of(-2f) * TVector.Abs(x));
        return TVector.Or((TVector.Of(0f) - falling) / (TVector.Of(2f) + falling), TVector.Sign(x));
    }

    /// <summary>sigmoid(gate) * tanh(x) with one division.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector GatedTanh(TVector gate, TVector x)
    {
        var falling = ExpMinusOne(TVector.Of(-2f) * TVector.Abs(x));
        var below = (TVector.Of(1f) + Exp(TVector.Of(0f) - gate)) * (TVector.Of(2f) + falling);
        return TVector.Or((TVector.Of(0f) - falling) / below, TVector.Sign(x));
    }

    /// <summary>value * sigmoid(gate)</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector Gated(TVector gate, TVector value) => value / (TVector.Of(1f) + Exp(TVector.Of(0f) - gate));

    /// <summary>x where it is positive, else e^x - 1.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector Elu(TVector x)
    {
        var zero = TVector.Of(0f);
        return TVector.SelectLess(zero, x, x, ExpMinusOne(TVector.SelectLess(zero, x, zero, x)));
    }

    /// <summary>x times the standard normal distribution at x.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector Gelu(TVector x)
    {
        return TVector.Of(0.5f) * x * TwiceNormal(x);
    }

    /// <summary>The derivative of GELU.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static TVector GeluSlope(TVector x)
    {
        var density = TVector.Of(0.39894228f) * Exp(TVector.Of(-0.5f) * x * x);
        return TVector.MultiplyAdd(x, density, TVector.Of(0.5f) * TwiceNormal(x));
    }

    /// <summary>Twice the standard normal distribution.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static TVector TwiceNormal(TVector x)
    {
        TVector zero = TVector.Of(0f), one = TVector.Of(1f), two = TVector.Of(2f);
        var z = x * TVector.Of(0.70710678f);
        var size = TVector.Abs(z);
        var complement = ComplementOfErf(TVector.SelectLess(one, size, size, one));
        var outside = TVector.SelectLess(zero, z, two - complement, complement);
        return TVector.SelectLess(one, size, outside, one + ErfNearZero(z));
    }

    /// <summary>The error function on [-1, 1]; Cephes.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static TVector ErfNearZero(TVector x)
    {
        var square = x * x;
        var sum = TVector.Of(7.853861353153693e-5f);
        sum = TVector.MultiplyAdd(sum, square, TVector.Of(-8.010193625184903e-4f));
        sum = TVector.MultiplyAdd(sum, square, TVector.Of(5.188327685732524e-3f));
        sum = TVector.MultiplyAdd(sum, square, TVector.Of(-2.685381193529856e-2f));
        sum = TVector.MultiplyAdd(sum, square, TVector.Of(1.128358514861418e-1f));
        sum = TVector.MultiplyAdd(sum, square, TVector.Of(-3.761262582423300e-1f));
        sum = TVector.MultiplyAdd(sum, square, TVector.Of(1.128379165726710f));
        return x * sum;
    }

    /// <summary>1 minus the error function from 1 on; Cephes.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static TVector ComplementOfErf(TVector x)
    {
        var reciprocal = TVector.Of(1f) / x;
        var square = reciprocal * reciprocal;
        var near = TVector.Of(2.326819970068386e-2f);
        near = TVector.MultiplyAdd(near, square, TVector.Of(-1.387039388740657e-1f));
        near = TVector.MultiplyAdd(near, square, TVector.Of(3.687424674597105e-1f));
        near = TVector.MultiplyAdd(near, square, TVector.Of(-5.824733027278666e-1f));
        near = TVector.MultiplyAdd(near, square, TVector.Of(6.210004621745983e-1f));
        near = TVector.MultiplyAdd(near, square, TVector.Of(-4.944515323274145e-1f));
        near = TVector.MultiplyAdd(near, square, TVector.Of(3.404879937665872e-1f));
        near = TVector.MultiplyAdd(near, square, TVector.Of(-2.741127028184656e-1f));
        near = TVector.MultiplyAdd(near, square, TVector.Of(5.638259427386472e-1f));
        var far = TVector.Of(-1.047766399936249e+1f);
        far = TVector.MultiplyAdd(far, square, TVector.Of(1.297719955372516e+1f));
        far = TVector.MultiplyAdd(far, square, TVector.Of(-7.495518717768503f));
        far = TVector.MultiplyAdd(far, square, TVector.Of(2.921019019210786f));
        far = TVector.MultiplyAdd(far, square, TVector.Of(-1.015265279202700f));
        far = TVector.MultiplyAdd(far, square, TVector.Of(4.218463358204948e-1f));
        far = TVector.MultiplyAdd(far, square, TVector.Of(-2.820767439740514e-1f));
        far = TVector.MultiplyAdd(far, square, TVector.Of(5.641895067754075e-1f));
        var sum = TVector.SelectLess(x, TVector.Of(2f), near, far);
        return Exp(TVector.Of(0f) - (x * x)) * reciprocal * sum;
    }

    /// <summary>e^x = power * (1 + rest), the rest in [-0.3, 0.42].</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private static void Split(TVector x, out TVector power, out TVector rest)
    {
        TVector most = TVector.Of(Largest), least = TVector.Of(-Largest);
        x = TVector.SelectLess(x, most, x, most);
        x = TVector.SelectLess(least, x, x, least);
        var whole = TVector.Round(x * TVector.Of(1.44269504f));
        var r = TVector.MultiplyAdd(whole, TVector.Of(-0.693359375f), x);
        r = TVector.MultiplyAdd(whole, TVector.Of(2.12194440e-4f), r);
        var sum = TVector.Of(1.9875691500e-4f);
        sum = TVector.MultiplyAdd(sum, r, TVector.Of(1.3981999507e-3f));
        sum = TVector.MultiplyAdd(sum, r, TVector.Of(8.3334519073e-3f));
        sum = TVector.MultiplyAdd(sum, r, TVector.Of(4.1665795894e-2f));
        sum = TVector.MultiplyAdd(sum, r, TVector.Of(1.6666665459e-1f));
        sum = TVector.MultiplyAdd(sum, r, TVector.Of(5.0000001201e-1f));
        rest = TVector.MultiplyAdd(sum, r * r, r);
        power = TVector.PowerOfTwo(whole);
    }
}
