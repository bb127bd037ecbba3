namespace Quantra.Client.Hosting.Servers;

/// <summary>Decides whether and when a server is restarted. Not thread-safe.</summary>
internal sealed class RestartBudget(QuantraServerOptions options, TimeProvider time)
{
    /// <summary>Timestamps of the latest restarts, oldest first.</summary>
    private readonly Queue<long> _restarts = new();

    /// <summary>Uses one restart.</summary>
    /// <param name="wasReady">Whether the server was ready since the last restart. If not, earlier restarts never expire.</param>
    /// <returns>The delay before the restart, 0 for the first and increasing after that; null = no restart is left.</returns>
    public TimeSpan? Spend(bool wasReady)
    {
        while (wasReady && _restarts.TryPeek(out var oldest) && time.GetElapsedTime(oldest) >= options.RestartWindow)
            _restarts.Dequeue();
        if (_restarts.Count >= options.MaxRestarts)
            return null;
        var wait = Wait(_restarts.Count);
        _restarts.Enqueue(time.GetTimestamp());
        return wait;
    }

    private TimeSpan Wait(int before) =>
        before == 0 ? TimeSpan.Zero : Min(options.RestartDelay * Math.Pow(2, Math.Min(before - 1, 20)), options.MaxRestartDelay);

    private static TimeSpan Min(TimeSpan one, TimeSpan other) => one < other ? one : other;
}
