using Quantra.Client;
using Quantra.Client.Embedded;

namespace Quantra.Benchmark;

/// <summary>Creates the measured predictor and its requests.</summary>
internal static class BenchmarkPredictor
{
    public const string Model = "stock";

    /// <summary>Opens a predictor.</summary>
    /// <param name="kind">grpc or embedded.</param>
    /// <param name="where">An address, or a folder of models.</param>
    public static async Task<IStockPredictor> OpenAsync(string kind, string where) => kind == "embedded"
        ? await EmbeddedPredictor.OpenAsync(new EmbeddedPredictorOptions { Models = where, Device = "cpu" })
        : new QuantraClient(new Uri(where));

    public static async Task<PredictionRequest> RequestAsync(string bars) => new(Model, await BarPanel.ReadCsvAsync(bars));

    public static PredictionRequest[] Many(PredictionRequest request, int count) => [.. Enumerable.Repeat(request, count)];
}
