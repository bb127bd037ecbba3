using Microsoft.Extensions.Diagnostics.HealthChecks;
using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Client.Hosting.Clients;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds the health of Quantra's clients to that of a program.</summary>
public static class QuantraHealthChecksBuilderExtensions
{
    /// <summary>
    /// Adds a check that asks for the list of models as a call would: healthy if there are any; degraded if there is none, if too much
    /// waits, or while a server of this host starts; else unhealthy. The reason is in the description.
    /// </summary>
    /// <param name="builder">Of the program's health checks.</param>
    /// <param name="name">Of the client; "" = the one without a name. The check's is "quantra" or "quantra:NAME".</param>
    /// <param name="failureStatus">To report instead of unhealthy; null = unhealthy.</param>
    /// <param name="tags">Of the check; null = none.</param>
    /// <param name="timeout">Longest wait for the answer; null = 5 seconds.</param>
    /// <returns>The same builder.</returns>
    public static IHealthChecksBuilder AddQuantra(
        this IHealthChecksBuilder builder,
        string name = "",
        HealthStatus? failureStatus = null,
        IEnumerable<string>? tags = null,
        TimeSpan? timeout = null)
    {
        ArgumentNullException.ThrowIfNull(builder);
        ArgumentNullException.ThrowIfNull(name);
        var wait = timeout ?? TimeSpan.FromSeconds(5);
        return builder.Add(new HealthCheckRegistration(
            name.Length == 0 ? "quantra" : $"quantra:{name}",
            services => new PredictorHealthCheck(
                Named.GetRequired<IStockPredictor>(services, name), Named.GetOrNull<QuantraServer>(services, name), wait),
            failureStatus,
            tags));
    }
}
