using System.Diagnostics;

namespace Quantra.Benchmark;

/// <summary>Times calls.</summary>
internal static class Clock
{
    /// <summary>The median of calls one after the other, in milliseconds.</summary>
    public static async Task<double> MedianMsAsync(Func<Task> call, int count)
    {
        var times = new double[count];
        for (var index = 0; index < count; index++)
            times[index] = await MsAsync(call);
        Array.Sort(times);
        return times[count / 2];
    }

    /// <summary>One call, in milliseconds.</summary>
    public static async Task<double> MsAsync(Func<Task> call)
    {
        var start = Stopwatch.GetTimestamp();
        await call();
        return Stopwatch.GetElapsedTime(start).TotalMilliseconds;
    }

    /// <summary>How long a call holds the thread that makes it, in milliseconds; the rest of the call is waited for.</summary>
    public static async Task<double> HeldMsAsync(Func<Task> call)
    {
        var start = Stopwatch.GetTimestamp();
        var task = call();
        var held = Stopwatch.GetElapsedTime(start).TotalMilliseconds;
        await task;
        return held;
    }

    /// <summary>Bytes that a call allocates in this process, on average.</summary>
    public static async Task<double> BytesAsync(Func<Task> call, int count)
    {
        await call();
        var before = GC.GetTotalAllocatedBytes(precise: true);
        for (var index = 0; index < count; index++)
            await call();
        return (double)(GC.GetTotalAllocatedBytes(precise: true) - before) / count;
    }
}
