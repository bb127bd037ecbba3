using System.Diagnostics;

namespace Quantra.Benchmark;

/// <summary>Measures calls.</summary>
internal static class CallTimer
{
    /// <summary>Returns the median duration of consecutive calls in milliseconds.</summary>
    public static async Task<double> MedianMsAsync(Func<Task> call, int count)
    {
        var times = new double[count];
        for (var index = 0; index < count; index++)
            times[index] = await MsAsync(call);
        Array.Sort(times);
        return times[count / 2];
    }

    /// <summary>Returns the duration of a call in milliseconds.</summary>
    public static async Task<double> MsAsync(Func<Task> call)
    {
        var start = Stopwatch.GetTimestamp();
        await call();
        return Stopwatch.GetElapsedTime(start).TotalMilliseconds;
    }

    /// <summary>Returns how long a call blocks the caller's thread, in milliseconds, and then awaits the call.</summary>
    public static async Task<double> BlockedMsAsync(Func<Task> call)
    {
        var start = Stopwatch.GetTimestamp();
        var task = call();
        var blocked = Stopwatch.GetElapsedTime(start).TotalMilliseconds;
        await task;
        return blocked;
    }

    /// <summary>Returns the average number of bytes that a call allocates in this process.</summary>
    public static async Task<double> BytesAsync(Func<Task> call, int count)
    {
        await call();
        var before = GC.GetTotalAllocatedBytes(precise: true);
        for (var index = 0; index < count; index++)
            await call();
        return (double)(GC.GetTotalAllocatedBytes(precise: true) - before) / count;
    }
}
