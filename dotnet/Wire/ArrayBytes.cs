using System.Buffers;
using System.Runtime.InteropServices;
using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Converts between arrays and raw little-endian bytes.</summary>
internal static class ArrayBytes
{
    /// <summary>Wraps an array as bytes without copying it. The array must not change before the call has completed.</summary>
    public static ByteString Of<T>(ReadOnlyMemory<T> array)
        where T : unmanaged
    {
        if (!BitConverter.IsLittleEndian)
            throw new PlatformNotSupportedException("arrays are sent as little-endian bytes, and this machine is big-endian");
        return array.IsEmpty ? ByteString.Empty : UnsafeByteOperations.UnsafeWrap(new View<T>(array).Memory);
    }

    /// <summary>Copies the doubles out of the bytes.</summary>
    /// <exception cref="QuantraException">INTERNAL: the number of bytes is not a multiple of 8.</exception>
    public static double[] Doubles(ByteString bytes) => bytes.Length % sizeof(double) == 0
        ? MemoryMarshal.Cast<byte, double>(bytes.Span).ToArray()
        : throw InvalidResponse.Create($"an array has {bytes.Length} bytes, not a multiple of {sizeof(double)}");

    public static ReadOnlyMemory<double>? ReadDoublesOrNull(ByteString bytes) => bytes.IsEmpty ? (ReadOnlyMemory<double>?)null : Doubles(bytes);

    /// <summary>Presents memory of any unmanaged type as memory of bytes.</summary>
    private sealed class View<T>(ReadOnlyMemory<T> array) : MemoryManager<byte>
        where T : unmanaged
    {
        public override Span<byte> GetSpan() => MemoryMarshal.AsBytes(MemoryMarshal.AsMemory(array).Span);

        public override MemoryHandle Pin(int elementIndex = 0) =>
            throw new NotSupportedException("the bytes can only be read through spans");

        public override void Unpin()
        {
        }

        protected override void Dispose(bool disposing)
        {
        }
    }
}
