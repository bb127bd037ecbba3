using System.Diagnostics;
using Quantra.Client;
using Quantra.Client.Managed;

namespace Quantra.Benchmark;

/// <summary>Measures a new process that forecasts without Python.</summary>
internal static class ColdStartBenchmark
{
    private const int Calls = 600;

    /// <summary>Reports the peak memory after one forecast, in MB, and the time since the process started, in ms.</summary>
    public static async Task FirstAsync(string[] args)
    {
        var (request, predictor) = await OpenAsync(args);
        await predictor.PredictAsync(request);
        using var process = Process.GetCurrentProcess();
        Report.WriteLine(
            ("first_ms", (DateTime.Now - process.StartTime).TotalMilliseconds),
            ("peak_mb", process.PeakWorkingSet64 / 1e6));
    }

    /// <summary>Reports the median of calls 3 to 20 over the median of the last ones.</summary>
    public static async Task WarmAsync(string[] args)
    {
        var (request, predictor) = await OpenAsync(args);
        var times = new double[Calls];
        for (var call = 0; call < Calls; call++)
            times[call] = await CallTimer.MsAsync(() => predictor.PredictAsync(request));
        Report.WriteLine(("warm", Median(times[2..20]) / Median(times[^200..])));
    }

    private static async Task<(PredictionRequest Request, ManagedPredictor Predictor)> OpenAsync(string[] args)
    {
        var predictor = await ManagedPredictor.OpenAsync(args[0]);
        return (new PredictionRequest(BenchmarkPredictor.Model, await BarPanel.ReadCsvAsync(args[1])), predictor);
    }

    private static double Median(double[] times) => times.Order().ElementAt(times.Length / 2);
}
