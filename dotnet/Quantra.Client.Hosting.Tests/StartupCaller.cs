using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A hosted service that requests a forecast when it starts and when it stops.</summary>
public sealed class StartupCaller(IStockPredictor predictor, PredictionRequest request) : IHostedService
{
    public Forecast? AtStart { get; private set; }

    public Forecast? AtEnd { get; private set; }

    public async Task StartAsync(CancellationToken cancellationToken) => AtStart = await predictor.PredictAsync(request, cancellationToken);

    public async Task StopAsync(CancellationToken cancellationToken) => AtEnd = await predictor.PredictAsync(request, cancellationToken);
}
