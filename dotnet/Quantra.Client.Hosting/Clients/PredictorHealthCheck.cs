using Microsoft.Extensions.Diagnostics.HealthChecks;

namespace Quantra.Client.Hosting.Clients;

/// <summary>Asks a predictor for its models, as a call would.</summary>
/// <param name="predictor">To ask.</param>
/// <param name="server">Of this host, which it asks; null = another.</param>
/// <param name="timeout">Longest wait for the answer.</param>
internal sealed class PredictorHealthCheck(IStockPredictor predictor, QuantraServer? server, TimeSpan timeout) : IHealthCheck
{
    /// <inheritdoc/>
    public async Task<HealthCheckResult> CheckHealthAsync(HealthCheckContext context, CancellationToken cancellationToken = default)
    {
        var status = server?.Status;
        if (status is { State: QuantraServerState.Starting or QuantraServerState.Degraded })
            return HealthCheckResult.Degraded(status.ToString());
        using var late = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        late.CancelAfter(timeout);
        try
        {
            var models = await predictor.ListModelsAsync(late.Token).ConfigureAwait(false);
            return Of(models);
        }
        catch (QuantraException error)
        {
            var found = error.Reason == QuantraReason.QueueFull ? HealthStatus.Degraded : context.Registration.FailureStatus;
            return new HealthCheckResult(found, error.Error.ToString(), error);
        }
        catch (OperationCanceledException error) when (!cancellationToken.IsCancellationRequested)
        {
            var told = FormattableString.Invariant($"{QuantraReason.DeadlineExceeded}: no answer within {timeout.TotalSeconds:g} s");
            return new HealthCheckResult(context.Registration.FailureStatus, told, error);
        }
    }

    private static HealthCheckResult Of(IReadOnlyList<ModelInfo> models)
    {
        var names = models.Select(model => FormattableString.Invariant($"{model.Name}@{model.Version}")).ToArray();
        var data = new Dictionary<string, object> { ["models"] = names };
        return names.Length > 0
            ? HealthCheckResult.Healthy($"serves {string.Join(", ", names)}", data)
            : HealthCheckResult.Degraded("serves no model", null, data);
    }
}
