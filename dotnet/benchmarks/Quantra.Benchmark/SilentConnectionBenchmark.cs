using System.Diagnostics;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>Measures recovery from a connection that dies silently, as when a computer sleeps or a router drops it.</summary>
internal static class SilentConnectionBenchmark
{
    private static readonly TimeSpan Ping = TimeSpan.FromSeconds(2);

    /// <summary>Answers each line of stdin with the time until a call succeeds.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await BenchmarkPredictor.RequestAsync(args[2]);
        var options = new QuantraClientOptions { PingInterval = Ping, PingTimeout = Ping };
        await using var client = new QuantraClient(new Uri(args[1]), options);
        await client.PredictAsync(request);
        Report.WriteLine(("ready", 1));
        while (await Console.In.ReadLineAsync() is not null)
        {
            var start = Stopwatch.GetTimestamp();
            await client.PredictAsync(request);
            Report.WriteLine(("seconds", Stopwatch.GetElapsedTime(start).TotalSeconds));
        }
    }
}
