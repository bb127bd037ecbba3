namespace Quantra.Benchmark;

/// <summary>The end of a process that had a predictor inside it.</summary>
internal static class Ending
{
    /// <summary>Tells when it begins to end.</summary>
    public static async Task RunAsync(string[] args)
    {
        var predictor = await Door.OpenAsync("embedded", args[0]);
        await predictor.PredictAsync(await Door.RequestAsync(args[1]));
        Told.Line(("ending", 1));
        await predictor.DisposeAsync();
    }
}
