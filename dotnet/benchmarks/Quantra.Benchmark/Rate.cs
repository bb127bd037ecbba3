using System.Diagnostics;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>Forecasts a second with 32 under way: as calls of their own, and over one stream.</summary>
internal static class Rate
{
    private const int InFlight = 32;

    /// <summary>As calls, so many seconds long.</summary>
    public static async Task<double> OfCallsAsync(IStockPredictor predictor, PredictionRequest request, int seconds)
    {
        var (begin, answered) = (Stopwatch.GetTimestamp(), 0);
        await Task.WhenAll(Enumerable.Range(0, InFlight).Select(async _ =>
        {
            while (Stopwatch.GetElapsedTime(begin).TotalSeconds < seconds)
            {
                await predictor.PredictAsync(request);
                Interlocked.Increment(ref answered);
            }
        }));
        return answered / Stopwatch.GetElapsedTime(begin).TotalSeconds;
    }

    /// <summary>Over one stream, so many seconds long.</summary>
    public static async Task<double> OfStreamAsync(IStockPredictor predictor, PredictionRequest request, int seconds)
    {
        var (begin, answered) = (Stopwatch.GetTimestamp(), 0);
        await foreach (var result in predictor.PredictStreamAsync(Requests()))
        {
            result.GetForecast();
            answered++;
        }

        return answered / Stopwatch.GetElapsedTime(begin).TotalSeconds;

        async IAsyncEnumerable<PredictionRequest> Requests()
        {
            while (Stopwatch.GetElapsedTime(begin).TotalSeconds < seconds)
                yield return request;
            await Task.CompletedTask;
        }
    }
}
