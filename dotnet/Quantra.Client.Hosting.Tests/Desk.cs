using Microsoft.Extensions.DependencyInjection;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A class of a program that asks for predictors.</summary>
public sealed class Desk(IStockPredictor usual, [FromKeyedServices("research")] IStockPredictor research)
{
    public IStockPredictor Usual => usual;

    public IStockPredictor Research => research;
}
