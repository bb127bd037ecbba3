using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection.Extensions;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;
using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Client.Hosting.Clients;
using Quantra.Client.Hosting.Configuration;
using Quantra.Client.Hosting.Servers;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds Quantra clients, servers and trainers to a service collection.</summary>
/// <remarks>
/// A named client or server is a keyed service, <c>[FromKeyedServices("name")] IStockPredictor</c>; an unnamed one is an ordinary service.
/// Adding the same name again adds options to the existing one. Options are validated when the host starts, or else when the service is
/// first resolved.
/// </remarks>
public static class QuantraServiceCollectionExtensions
{
    /// <summary>Adds a client as IStockPredictor, QuantraClient, IPathSimulator and IForecastLedger, and for admin calls as IModelLifecycle and ModelAdminClient.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="configure">Sets the address and other options.</param>
    /// <returns>The service collection.</returns>
    /// <remarks>
    /// The admin calls need <see cref="HostedClientOptions.AdminAddress"/>, or a server of this host with
    /// <see cref="QuantraServerOptions.AcceptsAdminCalls"/>.
    /// </remarks>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, Action<HostedClientOptions> configure) =>
        services.AddQuantraClient(Options.Options.DefaultName, configure);

    /// <summary>Adds a named client.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="name">Key of the service; "" = none.</param>
    /// <param name="configure">Sets the address and other options.</param>
    /// <returns>The service collection.</returns>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, string name, Action<HostedClientOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentNullException.ThrowIfNull(name);
        ArgumentNullException.ThrowIfNull(configure);
        services.AddOptionsWithValidateOnStart<HostedClientOptions>(name).Configure(configure);
        services.TryAddEnumerable(ServiceDescriptor.Singleton<IValidateOptions<HostedClientOptions>, HostedClientValidation>());
        NamedServices.TryAddSingleton(services, name, provider => HostedClientFactory.Open(provider, name));
        NamedServices.TryAddSingleton<IStockPredictor>(services, name, provider => NamedServices.GetRequired<QuantraClient>(provider, name));
        NamedServices.TryAddSingleton<IPathSimulator>(services, name, provider => NamedServices.GetRequired<QuantraClient>(provider, name));
        NamedServices.TryAddSingleton(services, name, provider => NamedServices.GetRequired<QuantraClient>(provider, name).Ledger);
        NamedServices.TryAddSingleton(services, name, provider => HostedClientFactory.OpenAdmin(provider, name));
        NamedServices.TryAddSingleton(services, name, provider => NamedServices.GetRequired<ModelAdminClient>(provider, name).Lifecycle);
        return services;
    }

    /// <summary>Adds a client from a configuration section.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="section">Settings with the names of the properties of <see cref="HostedClientOptions"/>. Any other name is an error.</param>
    /// <returns>The service collection.</returns>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, IConfiguration section) =>
        services.AddQuantraClient(Options.Options.DefaultName, section);

    /// <summary>Adds a named client from a configuration section.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="name">Key of the service; "" = none.</param>
    /// <param name="section">Settings with the names of the properties of <see cref="HostedClientOptions"/>. Any other name is an error.</param>
    /// <returns>The service collection.</returns>
    /// <remarks>The section is read when the client is first resolved. Later changes have no effect.</remarks>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, string name, IConfiguration section) =>
        services.AddQuantraClient(name, ReadSection(HostedClientSettings.Reader, name, section));

    /// <summary>Adds a server process that starts and stops with the host, and a client for it.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="configure">Sets the folder of models and other options.</param>
    /// <returns>The service collection.</returns>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, Action<QuantraServerOptions> configure) =>
        services.AddQuantraServer(Options.Options.DefaultName, configure);

    /// <summary>Adds a named server and a client of the same name for it.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="name">Key of the services; "" = none.</param>
    /// <param name="configure">Sets the folder of models and other options.</param>
    /// <returns>The service collection.</returns>
    /// <remarks>
    /// Add options to the client with <c>AddQuantraClient(name, …)</c>. To add another client for the server, set its
    /// <see cref="HostedClientOptions.Server"/> to the name of the server.
    /// </remarks>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, string name, Action<QuantraServerOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentNullException.ThrowIfNull(name);
        ArgumentNullException.ThrowIfNull(configure);
        var isNew = !services.Any(one => one.ServiceType == typeof(QuantraServer) && GetName(one) == name);
        services.AddOptionsWithValidateOnStart<QuantraServerOptions>(name).Configure(configure);
        if (!isNew)
            return services;
        services.TryAddEnumerable(ServiceDescriptor.Singleton<IValidateOptions<QuantraServerOptions>, QuantraServerValidation>());
        NamedServices.TryAddSingleton(services, name, provider => CreateServer(provider, name));
        services.AddSingleton<IHostedService>(provider =>
            new HostedServer(NamedServices.GetRequired<QuantraServer>(provider, name), GetOptions(provider, name).HostWaitsUntilReady));
        return services.AddQuantraClient(name, options => options.Server = name);
    }

    /// <summary>Adds a server and its client from a configuration section.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="section">Settings with the names of the properties of <see cref="QuantraServerOptions"/>. Any other name is an error.</param>
    /// <returns>The service collection.</returns>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, IConfiguration section) =>
        services.AddQuantraServer(Options.Options.DefaultName, section);

    /// <summary>Adds a named server and its client from a configuration section.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="name">Key of the services; "" = none.</param>
    /// <param name="section">Settings with the names of the properties of <see cref="QuantraServerOptions"/>. Any other name is an error.</param>
    /// <returns>The service collection.</returns>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, string name, IConfiguration section) =>
        services.AddQuantraServer(name, ReadSection(QuantraServerSettings.Reader, name, section));

    /// <summary>Adds a QuantraTrainer.</summary>
    /// <param name="services">The service collection.</param>
    /// <param name="configure">Sets options; null = the defaults.</param>
    /// <returns>The service collection.</returns>
    public static IServiceCollection AddQuantraTrainer(
        this IServiceCollection services, Action<QuantraTrainerOptions>? configure = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        services.AddOptions<QuantraTrainerOptions>().Configure(configure ?? (_ => { }));
        services.TryAddSingleton(provider => new QuantraTrainer(
            provider.GetRequiredService<IOptions<QuantraTrainerOptions>>().Value,
            provider.GetService<ILoggerFactory>(),
            provider.GetService<TimeProvider>()));
        return services;
    }

    private static Action<T> ReadSection<T>(OptionsReader<T> reader, string name, IConfiguration section)
        where T : class
    {
        ArgumentNullException.ThrowIfNull(section);
        return options => reader.Read(name, section, options);
    }

    private static string? GetName(ServiceDescriptor service) => service.IsKeyedService ? service.ServiceKey as string : "";

    private static QuantraServerOptions GetOptions(IServiceProvider services, string name) =>
        services.GetRequiredService<IOptionsMonitor<QuantraServerOptions>>().Get(name);

    private static QuantraServer CreateServer(IServiceProvider services, string name) =>
        new(GetOptions(services, name), services.GetService<ILoggerFactory>(), services.GetService<TimeProvider>());
}
