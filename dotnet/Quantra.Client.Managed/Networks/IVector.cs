using System.Runtime.CompilerServices;
using System.Runtime.Intrinsics;
using System.Runtime.Intrinsics.Arm;
using System.Runtime.Intrinsics.X86;

namespace Quantra.Client.Managed;

/// <summary>
/// A vector of float32 values. Every operation rounds each lane once, so that kernels written over it give the same
/// bits at every width.
/// </summary>
/// <remarks>.NET 8 has no fused multiply-add and no rounding of whole vectors: those use the processor's own.</remarks>
internal interface IVector<TSelf>
    where TSelf : struct, IVector<TSelf>
{
    /// <summary>Number of values.</summary>
    static abstract int Lanes { get; }

    /// <summary>The values from an offset on.</summary>
    static abstract TSelf Load(ref float source, nuint offset);

    /// <summary>The same value in every lane.</summary>
    static abstract TSelf Of(float value);

    static abstract TSelf operator +(TSelf left, TSelf right);

    static abstract TSelf operator -(TSelf left, TSelf right);

    static abstract TSelf operator *(TSelf left, TSelf right);

    static abstract TSelf operator /(TSelf left, TSelf right);

    /// <summary>a * b + c, rounded once.</summary>
    static abstract TSelf MultiplyAdd(TSelf a, TSelf b, TSelf c);

    /// <summary>The lane of <paramref name="value"/> where the mask's lane is negative or its bits are all set, else 0.</summary>
    static abstract TSelf And(TSelf value, TSelf mask);

    /// <summary><paramref name="whenTrue"/> where left is less than right, else <paramref name="whenFalse"/>; NaN is never less.</summary>
    static abstract TSelf SelectLess(TSelf left, TSelf right, TSelf whenTrue, TSelf whenFalse);

    /// <summary>The nearest whole number of each lane, ties to even; |value| must be below 2^22.</summary>
    static abstract TSelf Round(TSelf value);

    /// <summary>2 to the power of whole numbers from -126 to 127.</summary>
    static abstract TSelf PowerOfTwo(TSelf whole);

    /// <summary>The bits of the signs.</summary>
    static abstract TSelf Sign(TSelf value);

    /// <summary>Bitwise or.</summary>
    static abstract TSelf Or(TSelf left, TSelf right);

    /// <summary>The absolute values.</summary>
    static abstract TSelf Abs(TSelf value);

    /// <summary>Sum of 16 values: lanes 8 apart first, then 4, 2 and 1 apart.</summary>
    static abstract float SumOf16(ref float source);

    /// <summary>Stores the values from an offset on.</summary>
    void Store(ref float destination, nuint offset);
}

/// <summary>Constants and operations that the widths share.</summary>
internal static class VectorParts
{
    /// <summary>Adding and subtracting it rounds a float of less than 2^22 to a whole number.</summary>
    public const float Rounder = 12582912f;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static float SumOf8(Vector256<float> values) => SumOf4(values.GetLower() + values.GetUpper());

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static float SumOf4(Vector128<float> values) =>
        values.GetElement(0) + values.GetElement(2) + (values.GetElement(1) + values.GetElement(3));
}

/// <summary>16 values in a register of AVX-512.</summary>
internal readonly struct Wide512(Vector512<float> value) : IVector<Wide512>
{
    private readonly Vector512<float> _value = value;

    public static int Lanes => Vector512<float>.Count;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 Load(ref float source, nuint offset) => new(Vector512.LoadUnsafe(ref source, offset));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 Of(float value) => new(Vector512.Create(value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 operator +(Wide512 left, Wide512 right) => new(left._value + right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 operator -(Wide512 left, Wide512 right) => new(left._value - right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 operator *(Wide512 left, Wide512 right) => new(left._value * right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 operator /(Wide512 left, Wide512 right) => new(left._value / right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 MultiplyAdd(Wide512 a, Wide512 b, Wide512 c) =>
        new(Avx512F.FusedMultiplyAdd(a._value, b._value, c._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 And(Wide512 value, Wide512 mask) => new(value._value & mask._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 SelectLess(Wide512 left, Wide512 right, Wide512 whenTrue, Wide512 whenFalse) =>
        new(Vector512.ConditionalSelect(Vector512.LessThan(left._value, right._value), whenTrue._value, whenFalse._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 Round(Wide512 value)
    {
        var rounder = Vector512.Create(VectorParts.Rounder);
        return new(value._value + rounder - rounder);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 PowerOfTwo(Wide512 whole) =>
        new(Vector512.ShiftLeft(Vector512.ConvertToInt32(whole._value) + Vector512.Create(127), 23).AsSingle());

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 Sign(Wide512 value) => new(value._value & Vector512.Create(-0f));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 Or(Wide512 left, Wide512 right) => new(left._value | right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide512 Abs(Wide512 value) => new(Vector512.Abs(value._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static float SumOf16(ref float source)
    {
        var values = Vector512.LoadUnsafe(ref source);
        return VectorParts.SumOf8(values.GetLower() + values.GetUpper());
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public void Store(ref float destination, nuint offset) => _value.StoreUnsafe(ref destination, offset);
}

/// <summary>8 values in a register of AVX2.</summary>
internal readonly struct Wide256(Vector256<float> value) : IVector<Wide256>
{
    private readonly Vector256<float> _value = value;

    public static int Lanes => Vector256<float>.Count;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 Load(ref float source, nuint offset) => new(Vector256.LoadUnsafe(ref source, offset));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 Of(float value) => new(Vector256.Create(value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 operator +(Wide256 left, Wide256 right) => new(left._value + right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 operator -(Wide256 left, Wide256 right) => new(left._value - right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 operator *(Wide256 left, Wide256 right) => new(left._value * right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 operator /(Wide256 left, Wide256 right) => new(left._value / right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 MultiplyAdd(Wide256 a, Wide256 b, Wide256 c) =>
        new(Fma.MultiplyAdd(a._value, b._value, c._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 And(Wide256 value, Wide256 mask) => new(value._value & mask._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 SelectLess(Wide256 left, Wide256 right, Wide256 whenTrue, Wide256 whenFalse) =>
        new(Vector256.ConditionalSelect(Vector256.LessThan(left._value, right._value), whenTrue._value, whenFalse._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 Round(Wide256 value)
    {
        var rounder = Vector256.Create(VectorParts.Rounder);
        return new(value._value + rounder - rounder);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 PowerOfTwo(Wide256 whole) =>
        new(Vector256.ShiftLeft(Vector256.ConvertToInt32(whole._value) + Vector256.Create(127), 23).AsSingle());

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 Sign(Wide256 value) => new(value._value & Vector256.Create(-0f));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 Or(Wide256 left, Wide256 right) => new(left._value | right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide256 Abs(Wide256 value) => new(Vector256.Abs(value._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static float SumOf16(ref float source)
    {
        var upper = Vector256.LoadUnsafe(ref source, (nuint)Vector256<float>.Count);
        return VectorParts.SumOf8(Vector256.LoadUnsafe(ref source) + upper);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public void Store(ref float destination, nuint offset) => _value.StoreUnsafe(ref destination, offset);
}

/// <summary>4 values in a register of NEON.</summary>
internal readonly struct Wide128(Vector128<float> value) : IVector<Wide128>
{
    private readonly Vector128<float> _value = value;

    public static int Lanes => Vector128<float>.Count;

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 Load(ref float source, nuint offset) => new(Vector128.LoadUnsafe(ref source, offset));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 Of(float value) => new(Vector128.Create(value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 operator +(Wide128 left, Wide128 right) => new(left._value + right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 operator -(Wide128 left, Wide128 right) => new(left._value - right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 operator *(Wide128 left, Wide128 right) => new(left._value * right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 operator /(Wide128 left, Wide128 right) => new(left._value / right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 MultiplyAdd(Wide128 a, Wide128 b, Wide128 c) =>
        new(AdvSimd.IsSupported
            ? AdvSimd.FusedMultiplyAdd(c._value, a._value, b._value)
            : Fma.MultiplyAdd(a._value, b._value, c._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 And(Wide128 value, Wide128 mask) => new(value._value & mask._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 SelectLess(Wide128 left, Wide128 right, Wide128 whenTrue, Wide128 whenFalse) =>
        new(Vector128.ConditionalSelect(Vector128.LessThan(left._value, right._value), whenTrue._value, whenFalse._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 Round(Wide128 value)
    {
        var rounder = Vector128.Create(VectorParts.Rounder);
        return new(value._value + rounder - rounder);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 PowerOfTwo(Wide128 whole) =>
        new(Vector128.ShiftLeft(Vector128.ConvertToInt32(whole._value) + Vector128.Create(127), 23).AsSingle());

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 Sign(Wide128 value) => new(value._value & Vector128.Create(-0f));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 Or(Wide128 left, Wide128 right) => new(left._value | right._value);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static Wide128 Abs(Wide128 value) => new(Vector128.Abs(value._value));

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public static float SumOf16(ref float source)
    {
        var first = Vector128.LoadUnsafe(ref source) + Vector128.LoadUnsafe(ref source, 8);
        return VectorParts.SumOf4(first + (Vector128.LoadUnsafe(ref source, 4) + Vector128.LoadUnsafe(ref source, 12)));
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public void Store(ref float destination, nuint offset) => _value.StoreUnsafe(ref destination, offset);
}
