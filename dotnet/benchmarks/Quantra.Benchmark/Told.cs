using System.Text.Json;

namespace Quantra.Benchmark;

/// <summary>Tells the driver what was found.</summary>
internal static class Told
{
    /// <summary>A line of JSON.</summary>
    public static void Line(params IEnumerable<(string Name, double Value)> found)
    {
        Console.WriteLine(JsonSerializer.Serialize(found.ToDictionary(one => one.Name, one => one.Value)));
        Console.Out.Flush();
    }
}
