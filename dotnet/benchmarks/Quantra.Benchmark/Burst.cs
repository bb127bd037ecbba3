using System.Globalization;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>Many calls at once: more than a server takes on, so that some have to be asked again.</summary>
internal static class Burst
{
    /// <summary>How many fail.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await Door.RequestAsync(args[2]);
        await using var predictor = await Door.OpenAsync(args[0], args[1]);
        await predictor.PredictAsync(request);
        var count = int.Parse(args[3], CultureInfo.InvariantCulture);
        var failures = 0;
        var took = await Clock.MsAsync(() => Task.WhenAll(Enumerable.Range(0, count).Select(async _ =>
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
        Told.Line(("failed", failures), ("seconds", took / 1000));
    }
}
