using System.Globalization;
using System.Text.Json;

namespace Quantra.Client.Managed;

/// <summary>
/// A reader of one JSON object: each key must exist with the right type, and <see cref="End"/> rejects keys that were not read.
/// </summary>
/// <remarks>
/// The text must be strict JSON: UTF-8 without a byte order mark, unique keys, no NaN, no number beyond a double or beyond 64 bits, no lone
/// surrogate, at most 64 levels. Every failure is a <see cref="QuantraException"/> that names the file and the key.
/// </remarks>
internal sealed class JsonRecord
{
    /// <summary>Most levels of nested objects and lists.</summary>
    private const int MaxDepth = 64;

    /// <summary>Most characters of a wrong value in a message.</summary>
    private const int MostShown = 40;

    private readonly Dictionary<string, JsonElement> _values = new(StringComparer.Ordinal);
    private readonly HashSet<string> _read = new(StringComparer.Ordinal);
    private readonly string _source;
    private readonly string _path;

    private JsonRecord(JsonElement value, string source, string path)
    {
        (_source, _path) = (source, path);
        if (value.ValueKind != JsonValueKind.Object)
            throw ArtifactError.OfKey(source, path, $"is {Shown(value)}, expected an object");
        foreach (var property in value.EnumerateObject())
            _values.Add(property.Name, property.Value);
    }

    /// <summary>All keys, sorted.</summary>
    public IReadOnlyList<string> Keys => [.. _values.Keys.Order(StringComparer.Ordinal)];

    /// <summary>Parses a file whose root is an object.</summary>
    /// <param name="text">The file.</param>
    /// <param name="source">Its name, for errors.</param>
    public static JsonRecord Parse(ReadOnlyMemory<byte> text, string source) => new(ParseValue(text, source), source, "");

    /// <summary>Whether an optional key is present.</summary>
    public bool Has(string key) => _values.ContainsKey(key);

    /// <summary>Reads a value of any type.</summary>
    public JsonElement Json(string key)
    {
        if (!_values.TryGetValue(key, out var value))
            throw Refusal(key, "is missing");
        _read.Add(key);
        return value;
    }

    /// <summary>Reads a string.</summary>
    public string Text(string key) => Text(Json(key), key);

    /// <summary>Reads an integer, written without a fraction.</summary>
    public long Long(string key) => Long(Json(key), key);

    /// <summary>Reads an integer of 32 bits.</summary>
    public int Integer(string key) => Integer(Json(key), key);

    /// <summary>Reads a finite number.</summary>
    public double Number(string key) => Number(Json(key), key);

    /// <summary>Reads true or false.</summary>
    public bool Flag(string key) => Json(key) is { ValueKind: JsonValueKind.True or JsonValueKind.False } value
        ? value.GetBoolean()
        : throw Refusal(key, $"is {Shown(Json(key))}, expected true or false");

    /// <summary>Reads a list of strings.</summary>
    public string[] Texts(string key) => ReadAll(Json(key), key, Text);

    /// <summary>Reads a list of integers of 32 bits.</summary>
    public int[] Integers(string key) => ReadAll(Json(key), key, Integer);

    /// <summary>Reads a list of finite numbers.</summary>
    public double[] Numbers(string key) => ReadAll(Json(key), key, Number);

    /// <summary>Reads a list of lists of finite numbers.</summary>
    public double[][] Rows(string key) => ReadAll(Json(key), key, (row, path) => ReadAll(row, path, Number));

    /// <summary>Reads an object.</summary>
    public JsonRecord Record(string key) => new(Json(key), _source, DescribePath(key));

    /// <summary>Reads a list of objects.</summary>
    public JsonRecord[] Records(string key) => ReadAll(Json(key), key, (item, path) => new JsonRecord(item, _source, DescribePath(path)));

    /// <summary>Throws if a key was not read.</summary>
    public void End()
    {
        foreach (var key in Keys)
        {
            if (!_read.Contains(key))
                throw Refusal(key, "is an unknown key");
        }
    }

    /// <summary>The error for a wrong value; <paramref name="problem"/> reads like "is 7, but must be ...".</summary>
    public QuantraException Refusal(string key, string problem) => ArtifactError.OfKey(_source, DescribePath(key), problem);

    private static JsonElement ParseValue(ReadOnlyMemory<byte> text, string source)
    {
        try
        {
            using var document = JsonDocument.Parse(text, new JsonDocumentOptions { MaxDepth = MaxDepth });
            CheckValue(document.RootElement);
            return document.RootElement.Clone();
        }
        catch (JsonException problem)
        {
            throw ArtifactError.Of(source, $"is not strict JSON: {problem.Message}", problem);
        }
        catch (InvalidOperationException problem) // a string with a lone surrogate or invalid UTF-8
        {
            throw ArtifactError.Of(source, $"is not strict JSON: {problem.Message}", problem);
        }
    }

    private static void CheckValue(JsonElement value)
    {
        switch (value.ValueKind)
        {
            case JsonValueKind.Object:
                var names = new HashSet<string>(StringComparer.Ordinal);
                foreach (var property in value.EnumerateObject())
                {
                    if (!names.Add(property.Name))
                        throw new JsonException($"key '{property.Name}' appears twice");
                    CheckValue(property.Value);
                }

                break;
            case JsonValueKind.Array:
                foreach (var item in value.EnumerateArray())
                    CheckValue(item);
                break;
            case JsonValueKind.String:
                _ = value.GetString();
                break;
            case JsonValueKind.Number:
                CheckNumber(value.GetRawText());
                break;
            default:
                break;
        }
    }

    private static void CheckNumber(string text)
    {
        if (IsInteger(text))
        {
            if (!long.TryParse(text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var whole) || whole == long.MinValue)
                throw new JsonException($"{text} is beyond 64 bits");
        }
        else if (!double.IsFinite(double.Parse(text, NumberStyles.Float, CultureInfo.InvariantCulture)))
        {
            throw new JsonException($"{text} is beyond the range of a double");
        }
    }

    private static bool IsInteger(string text) => text.AsSpan().IndexOfAny('.', 'e', 'E') < 0;

    private static string Shown(JsonElement value)
    {
        var text = value.GetRawText();
        return text.Length <= MostShown ? text : text[..MostShown] + "…";
    }

    private T[] ReadAll<T>(JsonElement value, string key, Func<JsonElement, string, T> read)
    {
        if (value.ValueKind != JsonValueKind.Array)
            throw Refusal(key, $"is {Shown(value)}, expected a list");
        var items = new T[value.GetArrayLength()];
        var index = 0;
        foreach (var item in value.EnumerateArray())
        {
            items[index] = read(item, string.Create(CultureInfo.InvariantCulture, $"{key}[{index}]"));
            index++;
        }

        return items;
    }

    private string Text(JsonElement value, string key) =>
        value.ValueKind == JsonValueKind.String ? value.GetString()! : throw Refusal(key, $"is {Shown(value)}, expected a string");

    private int Integer(JsonElement value, string key) => Long(value, key) is >= int.MinValue and <= int.MaxValue and var whole
        ? (int)whole
        : throw Refusal(key, $"is {Shown(value)}, which is beyond 32 bits");

    private long Long(JsonElement value, string key) => value.ValueKind == JsonValueKind.Number && IsInteger(value.GetRawText())
        ? value.GetInt64()
        : throw Refusal(key, $"is {Shown(value)}, expected an integer");

    private double Number(JsonElement value, string key) => value.ValueKind == JsonValueKind.Number
        ? value.GetDouble()
        : throw Refusal(key, $"is {Shown(value)}, expected a number");

    private string DescribePath(string key) => _path.Length > 0 ? $"{_path}.{key}" : key;
}
