using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A service of a host that asks for a forecast when it starts, and when it ends.</summary>
public sealed class Caller(IStockPredictor predictor, PredictionRequest request) : IHostedService
{
    public Forecast? AtStart { get; private set; }

    public Forecast? AtEnd { get; private set; }

    public async Task StartAsync(CancellationToken cancellationToken) => AtStart = await predictor.PredictAsync(request, cancellationToken);

    public async Task StopAsync(CancellationToken cancellationToken) => AtEnd = await predictor.PredictAsync(request, cancellationToken);
}
