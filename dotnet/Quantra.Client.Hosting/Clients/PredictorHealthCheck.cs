using Microsoft.Extensions.Diagnostics.HealthChecks;

namespace Quantra.Client.Hosting.Clients;

/// <summary>Checks a predictor by listing its models.</summary>
/// <param name="predictor">The predictor.</param>
/// <param name="server">The server in this host that the predictor calls; null = another server.</param>
/// <param name="timeout">Longest wait for the response.</param>
internal sealed class PredictorHealthCheck(IStockPredictor predictor, QuantraServer? server, TimeSpan timeout) : IHealthCheck
{
    /// <inheritdoc/>
    public async Task<HealthCheckResult> CheckHealthAsync(HealthCheckContext context, CancellationToken cancellationToken = default)
    {
        var status = server?.Status;
        if (status is { State: QuantraServerState.Starting or QuantraServerState.Degraded })
            return HealthCheckResult.Degraded(status.ToString());
        using var timeoutSource = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        timeoutSource.CancelAfter(timeout);
        try
        {
            var models = await predictor.ListModelsAsync(timeoutSource.Token).ConfigureAwait(false);
            return ToResult(models);
        }
        catch (QuantraException error)
        {
            var failureStatus = error.Reason == QuantraReason.QueueFull ? HealthStatus.Degraded : context.Registration.FailureStatus;
            return new HealthCheckResult(failureStatus, error.Error.ToString(), error);
        }
        catch (OperationCanceledException error) when (!cancellationToken.IsCancellationRequested)
        {
            var message = FormattableString.Invariant($"{QuantraReason.DeadlineExceeded}: no response within {timeout.TotalSeconds:g} s");
            return new HealthCheckResult(context.Registration.FailureStatus, message, error);
        }
    }

    private static HealthCheckResult ToResult(IReadOnlyList<ModelInfo> models)
    {
        var names = models.Select(model => FormattableString.Invariant($"{model.Name}@{model.Version}")).ToArray();
        var data = new Dictionary<string, object> { ["models"] = names };
        return names.Length > 0
            ? HealthCheckResult.Healthy($"serves {string.Join(", ", names)}", data)
            : HealthCheckResult.Degraded("serves no models", null, data);
    }
}
