using System.Runtime.InteropServices;

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
    public float[] ToSingle() => To<float>("F32");

    /// <summary>Converts an F64 array.</summary>
    public double[] ToDouble() => To<double>("F64");

    /// <summary>Converts an I32 array.</summary>
    public int[] ToInt32() => To<int>("I32");

    /// <summary>Converts an I64 array.</summary>
    public long[] ToInt64() => To<long>("I64");

    /// <summary>Converts a BOOL array.</summary>
    public bool[] ToBoolean() => Array.ConvertAll(To<byte>("BOOL"), one => one != 0);

    /// <summary>Converts an array of any type.</summary>
    public double[] ToNumbers() => Type switch
    {
        "F64" => ToDouble(),
        "F32" => Array.ConvertAll(ToSingle(), value => (double)value),
        "I64" => Array.ConvertAll(ToInt64(), value => (double)value),
        "I32" => Array.ConvertAll(ToInt32(), value => (double)value),
        "BOOL" => Array.ConvertAll(ToBoolean(), value => value ? 1.0 : 0.0),
        _ => throw ArtifactError.Create($"array {Name} is {Type}, expected F64, F32, I64, I32 or BOOL"),
    };

    private T[] To<T>(string type)
        where T : unmanaged => Type == type
        ? MemoryMarshal.Cast<byte, T>(Bytes.Span).ToArray()
        : throw ArtifactError.Create($"array {Name} is {Type}, expected {type}");
}
