using Microsoft.Extensions.DependencyInjection;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A service that gets predictors by constructor injection.</summary>
public sealed class PredictorConsumer(IStockPredictor usual, [FromKeyedServices("research")] IStockPredictor research)
{
    public IStockPredictor Usual => usual;

    public IStockPredictor Research => research;
}
