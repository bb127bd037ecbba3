using System.Text.Json;

namespace Quantra.Client.Hosting.Processes;

/// <summary>A line that is a JSON object. A field that is missing, or is of another kind than asked for, is null.</summary>
internal sealed class JsonLine
{
    private readonly JsonElement _object;

    private JsonLine(JsonElement found) => _object = found;

    /// <summary>The object of a line; null if it is none.</summary>
    public static JsonLine? Of(string line)
    {
        try
        {
            using var document = JsonDocument.Parse(line);
            return document.RootElement.ValueKind == JsonValueKind.Object ? new JsonLine(document.RootElement.Clone()) : null;
        }
        catch (JsonException)
        {
            return null; // whatever else a program prints
        }
    }

    /// <summary>A text.</summary>
    public string? Text(string name) => Find(name, JsonValueKind.String)?.GetString();

    /// <summary>A number.</summary>
    public double? Number(string name) => Find(name, JsonValueKind.Number)?.GetDouble();

    /// <summary>A whole number.</summary>
    public int? Whole(string name) => Find(name, JsonValueKind.Number) is { } found && found.TryGetInt32(out var number) ? number : null;

    /// <summary>Whether a field is true.</summary>
    public bool IsTrue(string name) => Find(name, JsonValueKind.True) is not null;

    /// <summary>The texts of a list.</summary>
    public IReadOnlyList<string> Texts(string name) =>
        Find(name, JsonValueKind.Array) is { } found
            ? [.. found.EnumerateArray().Where(one => one.ValueKind == JsonValueKind.String).Select(one => one.GetString()!)]
            : [];

    /// <summary>An object within.</summary>
    public JsonLine? Inner(string name) => Find(name, JsonValueKind.Object) is { } found ? new JsonLine(found) : null;

    /// <summary>All texts by their names.</summary>
    public IReadOnlyDictionary<string, string> TextsByName() => _object.EnumerateObject()
        .Where(field => field.Value.ValueKind == JsonValueKind.String)
        .ToDictionary(field => field.Name, field => field.Value.GetString()!)
        .AsReadOnly();

    /// <summary>The names of all fields, in their order.</summary>
    public IEnumerable<string> Names() => _object.EnumerateObject().Select(field => field.Name);

    /// <summary>The object as JSON.</summary>
    public override string ToString() => _object.GetRawText();

    private JsonElement? Find(string name, JsonValueKind kind) =>
        _object.TryGetProperty(name, out var found) && found.ValueKind == kind ? found : null;
}
