using Microsoft.Extensions.Diagnostics.HealthChecks;
using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Client.Hosting.Clients;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds health checks for Quantra clients.</summary>
public static class QuantraHealthChecksBuilderExtensions
{
    /// <summary>
    /// Adds a check that lists the models. It is healthy if there are any. It is degraded if there are none, if the server's queue is full, or
    /// while a server of this host starts. Otherwise it is unhealthy. The description has the reason.
    /// </summary>
    /// <param name="builder">The health checks builder.</param>
    /// <param name="name">Name of the client; "" = the unnamed one. The check is named "quantra" or "quantra:NAME".</param>
    /// <param name="failureStatus">Status to report instead of unhealthy; null = unhealthy.</param>
    /// <param name="tags">Tags of the check; null = none.</param>
    /// <param name="timeout">Longest wait for the response; null = 5 seconds.</param>
    /// <returns>The builder.</returns>
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
                NamedServices.GetRequired<IStockPredictor>(services, name), NamedServices.GetOrNull<QuantraServer>(services, name), wait),
            failureStatus,
            tags));
    }
}
