using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Clients;

/// <summary>Opens the clients of a host.</summary>
internal static class HostedClient
{
    /// <summary>Opens the client of a name.</summary>
    public static QuantraClient Open(IServiceProvider services, string name) =>
        Open(services, services.GetRequiredService<IOptionsMonitor<HostedClientOptions>>().Get(name));

    /// <summary>Opens a client.</summary>
    /// <exception cref="ArgumentException">The address cannot be one, or the authorities' file holds no certificate.</exception>
    /// <exception cref="IOException">The authorities' file cannot be read.</exception>
    /// <exception cref="InvalidOperationException">There is no server of the name.</exception>
    public static QuantraClient Open(IServiceProvider services, HostedClientOptions options)
    {
        var client = options.ToClientOptions(services.GetService<ILoggerFactory>());
        return options.Server is { } server
            ? Named.GetRequired<QuantraServer>(services, server).OpenClient(client)
            : new QuantraClient(options.Address!, client);
    }
}
