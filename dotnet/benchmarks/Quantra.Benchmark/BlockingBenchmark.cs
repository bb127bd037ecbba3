namespace Quantra.Benchmark;

/// <summary>Measures how long calls block the caller's thread, which may be a UI thread.</summary>
internal static class BlockingBenchmark
{
    private const int Instances = 1000;

    /// <summary>Measures the first call of a process and one of many instances.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await BenchmarkPredictor.RequestAsync(args[2]);
        await using var predictor = await BenchmarkPredictor.OpenAsync(args[0], args[1]);
        var first = await CallTimer.BlockedMsAsync(() => predictor.PredictAsync(request));
        var many = BenchmarkPredictor.Many(request, Instances);
        var large = await CallTimer.BlockedMsAsync(() => predictor.PredictManyAsync(many));
        Report.WriteLine(("first", first), ("many", large));
    }
}
