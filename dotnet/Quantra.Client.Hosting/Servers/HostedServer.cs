using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Starts a server before all other services of the host and stops it after them, so that they can call it until they have stopped.</summary>
internal sealed class HostedServer(QuantraServer server, bool waits) : IHostedLifecycleService
{
    /// <inheritdoc/>
    public async Task StartingAsync(CancellationToken cancellationToken)
    {
        await server.StartAsync(cancellationToken).ConfigureAwait(false);
        if (waits)
            await server.WaitUntilReadyAsync(cancellationToken).ConfigureAwait(false);
    }

    /// <inheritdoc/>
    public Task StoppedAsync(CancellationToken cancellationToken) => server.StopAsync(cancellationToken);

    /// <inheritdoc/>
    public Task StartAsync(CancellationToken cancellationToken) => Task.CompletedTask;

    /// <inheritdoc/>
    public Task StartedAsync(CancellationToken cancellationToken) => Task.CompletedTask;

    /// <inheritdoc/>
    public Task StoppingAsync(CancellationToken cancellationToken) => Task.CompletedTask;

    /// <inheritdoc/>
    public Task StopAsync(CancellationToken cancellationToken) => Task.CompletedTask;
}
