using System.Text.Json;

namespace Quantra.Client.Hosting.Processes;

/// <summary>A line with a JSON object. A field that is missing or has another type is null.</summary>
internal sealed class JsonLine
{
    private readonly JsonElement _object;

    private JsonLine(JsonElement element) => _object = element;

    /// <summary>Parses a line; null if it is not a JSON object.</summary>
    public static JsonLine? Parse(string line)
    {
        try
        {
            using var document = JsonDocument.Parse(line);
            return document.RootElement.ValueKind == JsonValueKind.Object ? new JsonLine(document.RootElement.Clone()) : null;
        }
        catch (JsonException)
        {
            return null; // other output of the program
        }
    }

    public string? Text(string name) => Find(name, JsonValueKind.String)?.GetString();

    public double? Number(string name) => Find(name, JsonValueKind.Number)?.GetDouble();

    public int? Integer(string name) => Find(name, JsonValueKind.Number) is { } element && element.TryGetInt32(out var number) ? number : null;

    public bool IsTrue(string name) => Find(name, JsonValueKind.True) is not null;

    public IReadOnlyList<string> Texts(string name) =>
        Find(name, JsonValueKind.Array) is { } element
            ? [.. element.EnumerateArray().Where(item => item.ValueKind == JsonValueKind.String).Select(item => item.GetString()!)]
            : [];

    public JsonLine? Inner(string name) => Find(name, JsonValueKind.Object) is { } element ? new JsonLine(element) : null;

    public IReadOnlyDictionary<string, string> ReadTextsByName() => _object.EnumerateObject()
        .Where(field => field.Value.ValueKind == JsonValueKind.String)
        .ToDictionary(field => field.Name, field => field.Value.GetString()!)
        .AsReadOnly();

    /// <summary>Field names in order.</summary>
    public IEnumerable<string> Names() => _object.EnumerateObject().Select(field => field.Name);

    public override string ToString() => _object.GetRawText();

    private JsonElement? Find(string name, JsonValueKind kind) =>
        _object.TryGetProperty(name, out var element) && element.ValueKind == kind ? element : null;
}
