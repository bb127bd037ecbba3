using System.Buffers;
using System.Runtime.InteropServices;
using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Arrays as raw little-endian bytes.</summary>
internal static class ArrayBytes
{
    /// <summary>An array's bytes, without a copy: it must not change until the call is over.</summary>
    public static ByteString Of<T>(ReadOnlyMemory<T> array)
        where T : unmanaged
    {
        if (!BitConverter.IsLittleEndian)
            throw new PlatformNotSupportedException("arrays are sent as little-endian bytes, and this machine is big-endian");
        return array.IsEmpty ? ByteString.Empty : UnsafeByteOperations.UnsafeWrap(new View<T>(array).Memory);
    }

    /// <summary>A copy of the numbers in bytes.</summary>
    /// <exception cref="QuantraException">INTERNAL: some number is cut off.</exception>
    public static double[] Doubles(ByteString bytes) => bytes.Length % sizeof(double) == 0
        ? MemoryMarshal.Cast<byte, double>(bytes.Span).ToArray()
        : throw Unreadable.Answer($"an array has {bytes.Length} bytes, which is no number of doubles");

    /// <summary>The same, or null if there are no bytes.</summary>
    public static ReadOnlyMemory<double>? DoublesOrNull(ByteString bytes) => bytes.IsEmpty ? (ReadOnlyMemory<double>?)null : Doubles(bytes);

    /// <summary>Memory of any element as memory of bytes.</summary>
    private sealed class View<T>(ReadOnlyMemory<T> array) : MemoryManager<byte>
        where T : unmanaged
    {
        public override Span<byte> GetSpan() => MemoryMarshal.AsBytes(MemoryMarshal.AsMemory(array).Span);

        public override MemoryHandle Pin(int elementIndex = 0) =>
            throw new NotSupportedException("the bytes are only read through spans");

        public override void Unpin()
        {
        }

        protected override void Dispose(bool disposing)
        {
        }
    }
}
