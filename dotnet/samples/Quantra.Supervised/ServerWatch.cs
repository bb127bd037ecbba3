using Microsoft.Extensions.Hosting;
using Quantra.Client.Hosting;

namespace Quantra.Supervised;

/// <summary>Prints where the server stands, as a user interface would show it.</summary>
public sealed class ServerWatch(QuantraServer server) : BackgroundService
{
    protected override async Task ExecuteAsync(CancellationToken stoppingToken)
    {
        await foreach (var status in server.WatchAsync(stoppingToken))
            Console.WriteLine($"server: {status}, process {status.ProcessId}");
    }
}
