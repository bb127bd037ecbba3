using Quantra.Client;
using Quantra.Client.Embedded;

namespace Quantra.Benchmark;

/// <summary>The predictor that is measured, and what it is asked.</summary>
internal static class Door
{
    /// <summary>The model's name.</summary>
    public const string Model = "stock";

    /// <summary>Opens a door.</summary>
    /// <param name="kind">grpc or embedded.</param>
    /// <param name="where">An address, or a folder of models.</param>
    public static async Task<IStockPredictor> OpenAsync(string kind, string where) => kind == "embedded"
        ? await EmbeddedPredictor.OpenAsync(new EmbeddedPredictorOptions { Models = where, Device = "cpu" })
        : new QuantraClient(new Uri(where));

    /// <summary>A forecast of these bars.</summary>
    public static async Task<PredictionRequest> RequestAsync(string bars) => new(Model, await BarPanel.ReadCsvAsync(bars));

    /// <summary>Many of the same.</summary>
    public static PredictionRequest[] Many(PredictionRequest request, int count) => [.. Enumerable.Repeat(request, count)];
}
