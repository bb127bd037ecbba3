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
