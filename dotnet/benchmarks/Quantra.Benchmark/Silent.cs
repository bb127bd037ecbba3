using System.Diagnostics;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>A connection that dies without a word, as when a computer sleeps or a router forgets it.</summary>
internal static class Silent
{
    private static readonly TimeSpan Ping = TimeSpan.FromSeconds(2);

    /// <summary>Answers a line of stdin with how long it takes until there is an answer again.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await Door.RequestAsync(args[2]);
        var options = new QuantraClientOptions { PingInterval = Ping, PingTimeout = Ping };
        await using var client = new QuantraClient(new Uri(args[1]), options);
        await client.PredictAsync(request);
        Told.Line(("ready", 1));
        while (await Console.In.ReadLineAsync() is not null)
        {
            var start = Stopwatch.GetTimestamp();
            await client.PredictAsync(request);
            Told.Line(("seconds", Stopwatch.GetElapsedTime(start).TotalSeconds));
        }
    }
}
