using System.Text.Json;
using Grpc.Core;

namespace Quantra.Client.Embedded.Json;

/// <summary>One object of an answer, read by field.</summary>
internal readonly struct JsonFields(JsonElement json, double[][] buffers)
{
    public JsonFields Object(string name) => new(json.GetProperty(name), buffers);

    public bool Has(string name) => json.TryGetProperty(name, out var value) && value.ValueKind != JsonValueKind.Null;

    public string Text(string name) => json.GetProperty(name).GetString()!;

    public int Whole(string name) => json.GetProperty(name).GetInt32();

    public double Number(string name) => json.GetProperty(name).GetDouble();

    public bool Flag(string name) => json.GetProperty(name).GetBoolean();

    public string[] Texts(string name) => List(name, item => item.GetString()!);

    public int[] Wholes(string name) => List(name, item => item.GetInt32());

    public double[] Numbers(string name) => List(name, item => item.GetDouble());

    public bool[] Flags(string name) => List(name, item => item.GetBoolean());

    public DateOnly[] Days(string name) => List(name, item => SessionNumber.ToDate(item.GetInt32()));

    public T[] Objects<T>(string name, Func<JsonFields, T> read)
    {
        var all = buffers;
        return List(name, item => read(new JsonFields(item, all)));
    }

    public double[] Array(string name) => buffers[json.GetProperty(name).GetProperty("buffer").GetInt32()];

    public ReadOnlyMemory<double>? ArrayOrNull(string name) =>
        json.GetProperty(name).ValueKind == JsonValueKind.Null ? (ReadOnlyMemory<double>?)null : Array(name);

    /// <summary>A list of rows of integers, as one row-major array.</summary>
    public ReadOnlyMemory<int>? RowsOrNull(string name) => json.GetProperty(name).ValueKind == JsonValueKind.Null
        ? (ReadOnlyMemory<int>?)null
        : List(name, row => row.EnumerateArray().Select(item => item.GetInt32())).SelectMany(row => row).ToArray();

    public QuantraError Error()
    {
        var facts = json.GetProperty("metadata").EnumerateObject().ToDictionary(fact => fact.Name, fact => fact.Value.GetString()!);
        var code = Enum.Parse<StatusCode>(Text("status").Replace("_", "", StringComparison.Ordinal), ignoreCase: true);
        return new QuantraError(code, Text("reason"), Text("message"), facts);
    }

    private T[] List<T>(string name, Func<JsonElement, T> read) => [.. json.GetProperty(name).EnumerateArray().Select(read)];
}
