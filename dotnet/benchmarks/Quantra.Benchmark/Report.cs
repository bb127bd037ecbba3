using System.Text.Json;

namespace Quantra.Benchmark;

/// <summary>Reports results to the driver.</summary>
internal static class Report
{
    /// <summary>Writes a line of JSON.</summary>
    public static void WriteLine(params IEnumerable<(string Name, double Value)> results)
    {
        Console.WriteLine(JsonSerializer.Serialize(results.ToDictionary(one => one.Name, one => one.Value)));
        Console.Out.Flush();
    }
}
