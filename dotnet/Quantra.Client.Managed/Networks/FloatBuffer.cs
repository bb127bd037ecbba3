using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Quantra.Client.Managed;

/// <summary>Memory of float32 values, zero at first, that begins at a cache line.</summary>
internal sealed class FloatBuffer
{
    private const int Line = 64 / sizeof(float);

    private readonly float[] _values;
    private readonly int _start;
    private FloatBuffer? _turned;

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

    /// <summary>These weights [rows, columns] as [columns, rows] with padded rows, for gradients; computed once.</summary>
    public FloatBuffer Turned(int rows, int padded)
    {
        if (Volatile.Read(ref _turned) is { } present)
            return present;
        var (columns, turned) = (Length / rows, new FloatBuffer(Length / rows * padded));
        for (var k = 0; k < Length; k++)
            turned.At((k % columns * padded) + (k / columns)) = At(k);
        Volatile.Write(ref _turned, turned);
        return turned;
    }

    /// <summary>A copy of values.</summary>
    public static FloatBuffer Of(ReadOnlySpan<float> values)
    {
        var buffer = new FloatBuffer(values.Length);
        values.CopyTo(buffer.Span);
        return buffer;
    }
}
