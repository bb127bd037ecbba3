using System.Diagnostics;
using Xunit;

namespace Quantra.Client.Hosting.Tests;

public sealed class KillTests(Place place)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task Experiment()
    {
        await using var server = new QuantraServer(place.Options(o => { o.MaxRestarts = 100; o.MaxRestartDelay = TimeSpan.FromMilliseconds(10); o.RestartDelay = TimeSpan.FromMilliseconds(10); }));
        await server.StartAsync(Token);
        await server.WaitUntilReadyAsync(Token);
        await using var client = server.OpenClient(new QuantraClientOptions { Timeout = TimeSpan.FromSeconds(60), MaxAttempts = int.Parse(Environment.GetEnvironmentVariable("ATT") ?? "8") });
        using var end = new CancellationTokenSource();
        var failures = new System.Collections.Concurrent.ConcurrentDictionary<string, int>();
        var good = 0;
        async Task Ask()
        {
            while (!end.IsCancellationRequested)
            {
                try { await client.PredictAsync(place.Request, Token); Interlocked.Increment(ref good); }
                catch (QuantraException e) {
                    var chain = ""; for (Exception? x = e; x != null; x = x.InnerException) chain += " <- " + x.GetType().Name + ":" + x.Message + (x is HttpRequestException h ? h.HttpRequestError : "");
                    failures.AddOrUpdate(chain, 1, (_, n) => n + 1);
                }
            }
        }
        var askers = Enumerable.Range(0, 16).Select(_ => Task.Run(Ask)).ToArray();
        for (var round = 0; round < 8; round++)
        {
            await Task.Delay(Random.Shared.Next(200, 900), Token);
            var pid = server.Status.ProcessId!.Value;
            Process.GetProcessById(pid).Kill();
            await foreach (var s in server.WatchAsync(Token))
                if (s.State == QuantraServerState.Ready && s.ProcessId != pid) break;
        }
        await end.CancelAsync();
        await Task.WhenAll(askers);
        Console.WriteLine($"good {good}");
        foreach (var (k, v) in failures) Console.WriteLine($"{v} x {k}");
    }
}
