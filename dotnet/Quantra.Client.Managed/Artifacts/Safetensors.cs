using System.Buffers.Binary;

namespace Quantra.Client.Managed;

/// <summary>Reads safetensors files: 8 bytes of length, a JSON header, then the bytes of all arrays without gaps.</summary>
internal static class Safetensors
{
    private const int MaxHeaderBytes = 1 << 20;
    private const int MaxEntries = 10_000;
    private const string Metadata = "__metadata__";

    private static readonly Dictionary<string, int> Sizes = new()
    {
        ["BOOL"] = 1,
        ["U8"] = 1,
        ["I8"] = 1,
        ["I16"] = 2,
        ["F16"] = 2,
        ["BF16"] = 2,
        ["I32"] = 4,
        ["F32"] = 4,
        ["I64"] = 8,
        ["F64"] = 8,
    };

    /// <summary>Reads all arrays by name. They share the memory of the file.</summary>
    /// <param name="file">The file.</param>
    /// <param name="source">Its name, for errors.</param>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: the header is too large or invalid, or arrays overlap, have gaps, or exceed the file.</exception>
    public static Dictionary<string, Tensor> Read(ReadOnlyMemory<byte> file, string source)
    {
        if (file.Length < 8)
            throw ArtifactError.Of(source, $"has {file.Length} bytes, fewer than a header");
        var length = BinaryPrimitives.ReadUInt64LittleEndian(file.Span);
        if (length > MaxHeaderBytes || length > (ulong)(file.Length - 8))
            throw ArtifactError.Of(source, $"its header claims {length} bytes; at most {MaxHeaderBytes} are read");
        var header = JsonRecord.Parse(file.Slice(8, (int)length), $"{source}: its header");
        var content = file[(8 + (int)length)..];
        if (header.Keys.Count > MaxEntries)
            throw ArtifactError.Of(source, $"its header has {header.Keys.Count} entries; at most {MaxEntries} are read");
        var tensors = new List<Entry>();
        foreach (var name in header.Keys)
        {
            if (name != Metadata)
                tensors.Add(ReadEntry(header.Record(name), name, content, source));
        }

        var end = 0;
        tensors.Sort((left, right) => (left.Begin, left.End).CompareTo((right.Begin, right.End)));
        foreach (var (tensor, begin, next) in tensors)
        {
            if (begin != end)
                throw ArtifactError.Of(source, $"arrays must neither overlap nor leave gaps: {tensor.Name} begins at byte {begin}, expected {end}");
            end = next;
        }

        if (end != content.Length)
            throw ArtifactError.Of(source, $"its arrays have {end} bytes, the file has {content.Length} for them");
        return tensors.ToDictionary(one => one.Tensor.Name, one => one.Tensor, StringComparer.Ordinal);
    }

    private static Entry ReadEntry(JsonRecord entry, string name, ReadOnlyMemory<byte> content, string source)
    {
        var (type, shape, offsets) = (entry.Text("dtype"), entry.Integers("shape"), entry.Integers("data_offsets"));
        entry.End();
        if (!Sizes.TryGetValue(type, out var size))
            throw ArtifactError.Of(source, $"array {name} holds numbers of type {type}, which is not supported");
        if (offsets.Length != 2 || offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > content.Length)
            throw ArtifactError.Of(source, $"array {name} is at bytes {string.Join(" to ", offsets)} of {content.Length}");
        long bytes = size;
        foreach (var axis in shape)
        {
            bytes *= axis;
            if (axis < 0 || bytes > int.MaxValue)
                throw ArtifactError.Of(source, $"array {name} has the impossible shape {string.Join(", ", shape)}");
        }

        if (bytes != offsets[1] - offsets[0])
            throw ArtifactError.Of(source, $"array {name} has {offsets[1] - offsets[0]} bytes, its shape needs {bytes}");
        return new(new Tensor(name, type, shape, content[offsets[0]..offsets[1]]), offsets[0], offsets[1]);
    }

    private sealed record Entry(Tensor Tensor, int Begin, int End);
}
