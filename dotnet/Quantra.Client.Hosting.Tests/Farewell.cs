using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Asks a last time while the host ends.</summary>
public sealed class Farewell(IStockPredictor predictor, PredictionRequest request) : IHostedService
{
    public Forecast? Last { get; private set; }

    public Task StartAsync(CancellationToken cancellationToken) => Task.CompletedTask;

    public async Task StopAsync(CancellationToken cancellationToken) => Last = await predictor.PredictAsync(request, cancellationToken);
}
