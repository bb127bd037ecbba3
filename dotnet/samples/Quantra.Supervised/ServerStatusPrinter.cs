using Microsoft.Extensions.Hosting;
using Quantra.Client.Hosting;

namespace Quantra.Supervised;

/// <summary>Prints the status of the server.</summary>
public sealed class ServerStatusPrinter(QuantraServer server) : BackgroundService
{
    protected override async Task ExecuteAsync(CancellationToken stoppingToken)
    {
        await foreach (var status in server.WatchAsync(stoppingToken))
            Console.WriteLine($"server: {status}, process {status.ProcessId}");
    }
}
