using System.Diagnostics;
using Quantra.Client.Hosting;

namespace Quantra.Benchmark;

/// <summary>Measures a supervised server that is killed, and one whose program is killed.</summary>
internal static class SupervisedServerBenchmark
{
    private const int Times = 5;

    /// <summary>Measures starts and restarts after a kill, in turn.</summary>
    public static async Task RestartAsync(string[] args)
    {
        for (var time = 0; time < Times; time++)
        {
            await using var server = Server(args[0]);
            var start = Stopwatch.GetTimestamp();
            await server.StartAsync();
            await server.WaitUntilReadyAsync();
            var plain = Stopwatch.GetElapsedTime(start).TotalSeconds;
            using (var process = Process.GetProcessById(server.Status.ProcessId!.Value))
                process.Kill();
            var killed = Stopwatch.GetTimestamp();
            await foreach (var status in server.WatchAsync())
            {
                if (status is { State: QuantraServerState.Ready, Restarts: 1 })
                    break;
            }

            Report.WriteLine(("plain", plain), ("restart", Stopwatch.GetElapsedTime(killed).TotalSeconds));
        }
    }

    /// <summary>Reports the server's process id and waits to be killed.</summary>
    public static async Task WaitAsync(string[] args)
    {
        await using var server = Server(args[0]);
        await server.StartAsync();
        await server.WaitUntilReadyAsync();
        Report.WriteLine(("pid", server.Status.ProcessId!.Value));
        await Task.Delay(Timeout.InfiniteTimeSpan);
    }

    private static QuantraServer Server(string models) => new(new QuantraServerOptions { Models = models, Device = "cpu" });
}
