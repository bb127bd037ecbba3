using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.DependencyInjection.Extensions;

namespace Quantra.Client.Hosting;

/// <summary>Registers and resolves services by name. An unnamed service is an ordinary one, a named service a keyed one.</summary>
internal static class NamedServices
{
    /// <summary>Adds a singleton unless the name is taken.</summary>
    public static void TryAddSingleton<T>(IServiceCollection services, string name, Func<IServiceProvider, T> factory)
        where T : class
    {
        if (name.Length == 0)
            services.TryAddSingleton(factory);
        else
            services.TryAddKeyedSingleton(name, (provider, _) => factory(provider));
    }

    /// <exception cref="InvalidOperationException">The service was not added.</exception>
    public static T GetRequired<T>(IServiceProvider services, string name)
        where T : class => GetOrNull<T>(services, name)
            ?? throw new InvalidOperationException(name.Length == 0
                ? $"no unnamed {typeof(T).Name} was added to the services"
                : $"no {typeof(T).Name} named '{name}' was added to the services");

    public static T? GetOrNull<T>(IServiceProvider services, string name)
        where T : class => name.Length == 0 ? services.GetService<T>() : services.GetKeyedService<T>(name);
}
