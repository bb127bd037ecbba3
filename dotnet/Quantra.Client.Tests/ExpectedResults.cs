using System.Runtime.InteropServices;
using System.Text.Json;

namespace Quantra.Client.Tests;

/// <summary>Python's results, written by tests/contract/dotnet_fixture.py.</summary>
public sealed class ExpectedResults(JsonElement root)
{
    public static ExpectedResults Read(string path) => new(JsonDocument.Parse(File.ReadAllText(path)).RootElement);

    public string Environment => Text("environment");

    public int BarsNeeded => Number("bars_needed");

    public IReadOnlyList<string> Reasons => Texts("reasons");

    public ExpectedResults Of(string name) => new(root.GetProperty(name));

    public IEnumerable<ExpectedResults> All(string name) => root.GetProperty(name).EnumerateArray().Select(item => new ExpectedResults(item));

    public int Number(string name) => root.GetProperty(name).GetInt32();

    public string Text(string name) => root.GetProperty(name).GetString()!;

    public string[] Texts(string name) => [.. root.GetProperty(name).EnumerateArray().Select(item => item.GetString()!)];

    public T[] Array<T>(string name)
        where T : unmanaged => MemoryMarshal.Cast<byte, T>(Convert.FromBase64String(Text(name))).ToArray();

    /// <summary>Days that are stored as yyyymmdd.</summary>
    public DateOnly[] Days(string name) =>
        [.. Array<int>(name).Select(day => new DateOnly(day / 10000, day / 100 % 100, day % 100))];

    public long[] Bits(string name) => BitsOf(Array<double>(name));

    /// <summary>The bits of numbers, so that -0 differs from 0 and all NaN are equal.</summary>
    public static long[] BitsOf(ReadOnlyMemory<double> values) =>
        [.. values.ToArray().Select(value => double.IsNaN(value) ? long.MinValue : BitConverter.DoubleToInt64Bits(value))];
}
