using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.DependencyInjection.Extensions;

namespace Quantra.Client.Hosting;

/// <summary>Services by name: one without a name is an ordinary service, one with a name a keyed service.</summary>
internal static class Named
{
    /// <summary>Adds a singleton, unless there is one of the name.</summary>
    public static void TryAddSingleton<T>(IServiceCollection services, string name, Func<IServiceProvider, T> make)
        where T : class
    {
        if (name.Length == 0)
            services.TryAddSingleton(make);
        else
            services.TryAddKeyedSingleton(name, (provider, _) => make(provider));
    }

    /// <summary>The service of a name.</summary>
    /// <exception cref="InvalidOperationException">There is none.</exception>
    public static T GetRequired<T>(IServiceProvider services, string name)
        where T : class => GetOrNull<T>(services, name)
            ?? throw new InvalidOperationException(name.Length == 0
                ? $"no {typeof(T).Name} without a name was added to the services"
                : $"no {typeof(T).Name} named '{name}' was added to the services");

    /// <summary>The service of a name, if there is one.</summary>
    public static T? GetOrNull<T>(IServiceProvider services, string name)
        where T : class => name.Length == 0 ? services.GetService<T>() : services.GetKeyedService<T>(name);
}
