using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Quantra.Client.Managed;

/// <summary>Memory of float32 values, zero at first, that begins at a cache line.</summary>
internal sealed class FloatBuffer
{
    private const int Line = 64 / sizeof(float);

    private readonly float[] _values;
    private readonly int _start;

    public FloatBuffer(int length)
    {
        Length = length;
        _values = GC.AllocateArray<float>(length + Line, pinned: true);
        var beyond = (int)((Marshal.UnsafeAddrOfPinnedArrayElement(_values, 0) >> 2) & (Line - 1));
        _start = (Line - beyond) % Line;
    }

    /// <summary>Number of values.</summary>
    public int Length { get; }

    /// <summary>The first value.</summary>
    public ref float First => ref Unsafe.Add(ref MemoryMarshal.GetArrayDataReference(_values), _start);

    /// <summary>All values.</summary>
    public Span<float> Span => _values.AsSpan(_start, Length);

    /// <summary>A reference to the value at an index.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public ref float At(int index) => ref Unsafe.Add(ref First, index);

    /// <summary>A copy of values.</summary>
    public static FloatBuffer Of(ReadOnlySpan<float> values)
    {
        var buffer = new FloatBuffer(values.Length);
        values.CopyTo(buffer.Span);
        return buffer;
    }
}
