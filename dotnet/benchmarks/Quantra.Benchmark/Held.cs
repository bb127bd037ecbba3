namespace Quantra.Benchmark;

/// <summary>How long calls hold the thread that makes them: a window's thread must not be.</summary>
internal static class Held
{
    private const int Instances = 1000;

    /// <summary>The first call of a process, and one of many instances.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await Door.RequestAsync(args[2]);
        await using var predictor = await Door.OpenAsync(args[0], args[1]);
        var first = await Clock.HeldMsAsync(() => predictor.PredictAsync(request));
        var many = Door.Many(request, Instances);
        var large = await Clock.HeldMsAsync(() => predictor.PredictManyAsync(many));
        Told.Line(("first", first), ("many", large));
    }
}
