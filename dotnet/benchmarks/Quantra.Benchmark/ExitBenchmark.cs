namespace Quantra.Benchmark;

/// <summary>Measures the exit of a process with an embedded predictor.</summary>
internal static class ExitBenchmark
{
    /// <summary>Reports the moment at which the exit begins.</summary>
    public static async Task RunAsync(string[] args)
    {
        var predictor = await BenchmarkPredictor.OpenAsync("embedded", args[0]);
        await predictor.PredictAsync(await BenchmarkPredictor.RequestAsync(args[1]));
        Report.WriteLine(("ending", 1));
        await predictor.DisposeAsync();
    }
}
