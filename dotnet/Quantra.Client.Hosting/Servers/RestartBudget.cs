namespace Quantra.Client.Hosting.Servers;

/// <summary>How often and how soon a server is started again. Not thread-safe.</summary>
internal sealed class RestartBudget(QuantraServerOptions options, TimeProvider time)
{
    /// <summary>When the latest restarts were, as timestamps, oldest first.</summary>
    private readonly Queue<long> _restarts = new();

    /// <summary>Spends a restart.</summary>
    /// <param name="wasReady">Whether the server has answered since the last one; else all restarts since it did count, however long ago.</param>
    /// <returns>How long to wait before it: nothing before the first, then ever longer; null = there is none left.</returns>
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
        before == 0 ? TimeSpan.Zero : Shorter(options.RestartDelay * Math.Pow(2, Math.Min(before - 1, 20)), options.MaxRestartDelay);

    private static TimeSpan Shorter(TimeSpan one, TimeSpan other) => one < other ? one : other;
}
