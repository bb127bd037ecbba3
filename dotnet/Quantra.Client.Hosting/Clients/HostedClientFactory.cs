using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Clients;

/// <summary>Creates the clients of a host.</summary>
internal static class HostedClientFactory
{
    public static QuantraClient Open(IServiceProvider services, string name) =>
        Open(services, services.GetRequiredService<IOptionsMonitor<HostedClientOptions>>().Get(name));

    /// <exception cref="ArgumentException">The address is invalid, or the authority file has no certificate.</exception>
    /// <exception cref="IOException">The authority file cannot be read.</exception>
    /// <exception cref="InvalidOperationException">The named server does not exist.</exception>
    public static QuantraClient Open(IServiceProvider services, HostedClientOptions options)
    {
        var client = options.ToClientOptions(services.GetService<ILoggerFactory>());
        return options.Server is { } server
            ? NamedServices.GetRequired<QuantraServer>(services, server).OpenClient(client)
            : new QuantraClient(options.Address!, client);
    }

    public static ModelAdminClient OpenAdmin(IServiceProvider services, string name)
    {
        var options = services.GetRequiredService<IOptionsMonitor<HostedClientOptions>>().Get(name);
        return OpenAdminOrNull(services, options) ?? throw new InvalidOperationException(
            options.Server is null
                ? $"{HostedClientOptions.Describe(name)} has no AdminAddress; set it to the server's --admin-listen, for example http://127.0.0.1:50052"
                : $"the server of {HostedClientOptions.Describe(name)} does not accept admin calls; set AcceptsAdminCalls of its options");
    }

    /// <exception cref="ArgumentException">The admin address is invalid, or the authority file has no certificate.</exception>
    /// <exception cref="IOException">The authority file cannot be read.</exception>
    /// <exception cref="InvalidOperationException">The named server does not exist.</exception>
    public static ModelAdminClient? OpenAdminOrNull(IServiceProvider services, HostedClientOptions options)
    {
        var client = options.ToClientOptions(services.GetService<ILoggerFactory>());
        if (options.AdminAddress is { } address)
            return new ModelAdminClient(address, client);
        return options.Server is { } name && NamedServices.GetRequired<QuantraServer>(services, name) is { AcceptsAdminCalls: true } server
            ? server.OpenAdminClient(client)
            : null;
    }
}
