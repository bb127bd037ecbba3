using System.Globalization;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>Makes more calls at once than a server accepts, so that some are retried.</summary>
internal static class BurstBenchmark
{
    /// <summary>Counts failed calls.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await BenchmarkPredictor.RequestAsync(args[2]);
        await using var predictor = await BenchmarkPredictor.OpenAsync(args[0], args[1]);
        await predictor.PredictAsync(request);
        var count = int.Parse(args[3], CultureInfo.InvariantCulture);
        var failures = 0;
        var took = await CallTimer.MsAsync(() => Task.WhenAll(Enumerable.Range(0, count).Select(async _ =>
        {
            try
            {
                await predictor.PredictAsync(request);
            }
            catch (QuantraException)
            {
                Interlocked.Increment(ref failures);
            }
        })));
        Report.WriteLine(("failed", failures), ("seconds", took / 1000));
    }
}
