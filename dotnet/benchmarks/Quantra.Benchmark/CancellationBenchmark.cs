namespace Quantra.Benchmark;

/// <summary>Measures a call right after a large cancelled one.</summary>
internal static class CancellationBenchmark
{
    private const int Instances = 1000;
    private const int Times = 5;
    private static readonly TimeSpan CancelDelay = TimeSpan.FromMilliseconds(100);

    /// <summary>Reports the slowest of several calls.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await BenchmarkPredictor.RequestAsync(args[2]);
        await using var predictor = await BenchmarkPredictor.OpenAsync(args[0], args[1]);
        await predictor.PredictAsync(request);
        var slowest = 0.0;
        for (var time = 0; time < Times; time++)
        {
            using var source = new CancellationTokenSource();
            var large = predictor.PredictManyAsync(BenchmarkPredictor.Many(request, Instances), source.Token);
            await Task.Delay(CancelDelay);
            await source.CancelAsync();
            slowest = Math.Max(slowest, await CallTimer.MsAsync(() => predictor.PredictAsync(request)));
            await Task.WhenAny(large);
        }

        Report.WriteLine(("slowest", slowest));
    }
}
