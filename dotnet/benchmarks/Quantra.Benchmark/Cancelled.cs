namespace Quantra.Benchmark;

/// <summary>How long a call takes right after a large one that was cancelled.</summary>
internal static class Cancelled
{
    private const int Instances = 1000;
    private const int Times = 5;
    private static readonly TimeSpan Begun = TimeSpan.FromMilliseconds(100);

    /// <summary>The slowest of several times.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await Door.RequestAsync(args[2]);
        await using var predictor = await Door.OpenAsync(args[0], args[1]);
        await predictor.PredictAsync(request);
        var slowest = 0.0;
        for (var time = 0; time < Times; time++)
        {
            using var source = new CancellationTokenSource();
            var large = predictor.PredictManyAsync(Door.Many(request, Instances), source.Token);
            await Task.Delay(Begun);
            await source.CancelAsync();
            slowest = Math.Max(slowest, await Clock.MsAsync(() => predictor.PredictAsync(request)));
            await Task.WhenAny(large);
        }

        Told.Line(("slowest", slowest));
    }
}
