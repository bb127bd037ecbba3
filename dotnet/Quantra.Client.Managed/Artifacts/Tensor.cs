using System.Buffers.Binary;

namespace Quantra.Client.Managed;

/// <summary>An array of a safetensors file.</summary>
/// <param name="Name">Its name.</param>
/// <param name="Type">Type of its numbers as in the file, such as "F32".</param>
/// <param name="Shape">Its shape; empty = one number.</param>
/// <param name="Bytes">Its numbers, row-major and little-endian.</param>
internal sealed record Tensor(string Name, string Type, int[] Shape, ReadOnlyMemory<byte> Bytes)
{
    /// <summary>Number of elements.</summary>
    public int Count => Shape.Aggregate(1, (product, length) => product * length);

    /// <summary>Converts an F32 array.</summary>
    public float[] ToSingle() => To("F32", 4, BinaryPrimitives.ReadSingleLittleEndian);

    /// <summary>Converts an F64 array.</summary>
    public double[] ToDouble() => To("F64", 8, BinaryPrimitives.ReadDoubleLittleEndian);

    /// <summary>Converts an I32 array.</summary>
    public int[] ToInt32() => To("I32", 4, BinaryPrimitives.ReadInt32LittleEndian);

    /// <summary>Converts an I64 array.</summary>
    public long[] ToInt64() => To("I64", 8, BinaryPrimitives.ReadInt64LittleEndian);

    /// <summary>Converts a BOOL array.</summary>
    public bool[] ToBoolean() => To("BOOL", 1, bytes => bytes[0] != 0);

    /// <summary>Converts an array of any type.</summary>
    public double[] ToNumbers() => Type switch
    {
        "F64" => ToDouble(),
        "F32" => Array.ConvertAll(ToSingle(), value => (double)value),
        "I64" => Array.ConvertAll(ToInt64(), value => (double)value),
        "I32" => Array.ConvertAll(ToInt32(), value => (double)value),
        _ => Array.ConvertAll(ToBoolean(), value => value ? 1.0 : 0.0),
    };

    private T[] To<T>(string type, int size, Reader<T> read)
    {
        if (Type != type)
            throw ArtifactError.Create($"array {Name} is {Type}, expected {type}");
        var values = new T[Bytes.Length / size];
        for (var index = 0; index < values.Length; index++)
            values[index] = read(Bytes.Span[(index * size)..]);
        return values;
    }

    private delegate T Reader<T>(ReadOnlySpan<byte> bytes);
}
