using Quantra.Client;
using Quantra.Client.Embedded;
using Quantra.Client.Managed;

namespace Quantra.Benchmark;

/// <summary>Creates the measured predictor and its requests.</summary>
internal static class BenchmarkPredictor
{
    public const string Model = "stock";

    /// <summary>Opens a predictor.</summary>
    /// <param name="kind">grpc, embedded or managed.</param>
    /// <param name="where">An address, or a folder of models.</param>
    public static async Task<IStockPredictor> OpenAsync(string kind, string where) => kind switch
    {
        "embedded" => await EmbeddedPredictor.OpenAsync(new EmbeddedPredictorOptions { Models = where, Device = "cpu" }),
        "managed" => await ManagedPredictor.OpenAsync(where),
        _ => new QuantraClient(new Uri(where)),
    };

    public static async Task<PredictionRequest> RequestAsync(string bars) => new(Model, await BarPanel.ReadCsvAsync(bars));

    public static PredictionRequest[] Many(PredictionRequest request, int count) => [.. Enumerable.Repeat(request, count)];
}
