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

/// <summary>Adds Quantra's clients, servers and trainings to the services of a program.</summary>
/// <remarks>
/// What has a name is a keyed service of that name, <c>[FromKeyedServices("name")] IStockPredictor</c>; what has none is an ordinary
/// service. Added again, a client or server gets further options and is still one. Options are checked when the host starts, or else
/// when the service is first asked for.
/// </remarks>
public static class QuantraServiceCollectionExtensions
{
    /// <summary>Adds a client, as IStockPredictor and QuantraClient.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="configure">Sets its address and whatever else.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, Action<HostedClientOptions> configure) =>
        services.AddQuantraClient(Options.Options.DefaultName, configure);

    /// <summary>Adds a client with a name.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="name">By which it is asked for; "" = none.</param>
    /// <param name="configure">Sets its address and whatever else.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, string name, Action<HostedClientOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentNullException.ThrowIfNull(name);
        ArgumentNullException.ThrowIfNull(configure);
        services.AddOptionsWithValidateOnStart<HostedClientOptions>(name).Configure(configure);
        services.TryAddEnumerable(ServiceDescriptor.Singleton<IValidateOptions<HostedClientOptions>, HostedClientValidation>());
        Named.TryAddSingleton(services, name, provider => HostedClient.Open(provider, name));
        Named.TryAddSingleton<IStockPredictor>(services, name, provider => Named.GetRequired<QuantraClient>(provider, name));
        return services;
    }

    /// <summary>Adds a client that a section of the configuration describes.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="section">Settings named as the properties of <see cref="HostedClientOptions"/>; any other is an error.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, IConfiguration section) =>
        services.AddQuantraClient(Options.Options.DefaultName, section);

    /// <summary>Adds a client with a name that a section of the configuration describes.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="name">By which it is asked for; "" = none.</param>
    /// <param name="section">Settings named as the properties of <see cref="HostedClientOptions"/>; any other is an error.</param>
    /// <returns>The same services.</returns>
    /// <remarks>The section is read when the client is first needed; later changes have no effect.</remarks>
    public static IServiceCollection AddQuantraClient(this IServiceCollection services, string name, IConfiguration section) =>
        services.AddQuantraClient(name, Reading(HostedClientSettings.All, name, section));

    /// <summary>Adds a server of the program's own, which starts and ends with the host, and a client that calls it.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="configure">Sets its folder of models and whatever else.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, Action<QuantraServerOptions> configure) =>
        services.AddQuantraServer(Options.Options.DefaultName, configure);

    /// <summary>Adds a server with a name, and a client of the same name that calls it.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="name">By which they are asked for; "" = none.</param>
    /// <param name="configure">Sets its folder of models and whatever else.</param>
    /// <returns>The same services.</returns>
    /// <remarks>
    /// The client gets further options by <c>AddQuantraClient(name, …)</c>; other clients call the server if their
    /// <see cref="HostedClientOptions.Server"/> is its name.
    /// </remarks>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, string name, Action<QuantraServerOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentNullException.ThrowIfNull(name);
        ArgumentNullException.ThrowIfNull(configure);
        var isNew = !services.Any(one => one.ServiceType == typeof(QuantraServer) && NameOf(one) == name);
        services.AddOptionsWithValidateOnStart<QuantraServerOptions>(name).Configure(configure);
        if (!isNew)
            return services;
        services.TryAddEnumerable(ServiceDescriptor.Singleton<IValidateOptions<QuantraServerOptions>, QuantraServerValidation>());
        Named.TryAddSingleton(services, name, provider => Server(provider, name));
        services.AddSingleton<IHostedService>(provider =>
            new HostedServer(Named.GetRequired<QuantraServer>(provider, name), OptionsOf(provider, name).HostWaitsUntilReady));
        return services.AddQuantraClient(name, options => options.Server = name);
    }

    /// <summary>Adds a server that a section of the configuration describes, and a client that calls it.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="section">Settings named as the properties of <see cref="QuantraServerOptions"/>; any other is an error.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, IConfiguration section) =>
        services.AddQuantraServer(Options.Options.DefaultName, section);

    /// <summary>Adds a server with a name that a section of the configuration describes, and a client of the same name.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="name">By which they are asked for; "" = none.</param>
    /// <param name="section">Settings named as the properties of <see cref="QuantraServerOptions"/>; any other is an error.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddQuantraServer(this IServiceCollection services, string name, IConfiguration section) =>
        services.AddQuantraServer(name, Reading(QuantraServerSettings.All, name, section));

    /// <summary>Adds a QuantraTrainer.</summary>
    /// <param name="services">Of the program.</param>
    /// <param name="configure">Sets its options; null = as they are.</param>
    /// <returns>The same services.</returns>
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

    private static Action<T> Reading<T>(Settings<T> settings, string name, IConfiguration section)
        where T : class
    {
        ArgumentNullException.ThrowIfNull(section);
        return options => settings.Read(name, section, options);
    }

    private static string? NameOf(ServiceDescriptor service) => service.IsKeyedService ? service.ServiceKey as string : "";

    private static QuantraServerOptions OptionsOf(IServiceProvider services, string name) =>
        services.GetRequiredService<IOptionsMonitor<QuantraServerOptions>>().Get(name);

    private static QuantraServer Server(IServiceProvider services, string name) =>
        new(OptionsOf(services, name), services.GetService<ILoggerFactory>(), services.GetService<TimeProvider>());
}
