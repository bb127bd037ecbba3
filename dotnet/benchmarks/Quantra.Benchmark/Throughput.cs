using System.Diagnostics;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>Measures forecasts per second with 32 requests in flight, as separate calls and over one stream.</summary>
internal static class Throughput
{
    private const int InFlight = 32;

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
