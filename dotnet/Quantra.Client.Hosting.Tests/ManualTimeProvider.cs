namespace Quantra.Client.Hosting.Tests;

/// <summary>A clock that a test controls.</summary>
internal sealed class ManualTimeProvider : TimeProvider
{
    private readonly object _gate = new();
    private readonly List<Timer> _waiting = [];
    private TaskCompletionSource _changed = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private TimeSpan _now;

    public override long TimestampFrequency => TimeSpan.TicksPerSecond;

    public override long GetTimestamp()
    {
        lock (_gate)
            return _now.Ticks;
    }

    /// <summary>Waits for a timer of this duration and fires only this one.</summary>
    public async Task FireTimerAsync(TimeSpan wait, CancellationToken cancellationToken)
    {
        while (true)
        {
            var (timer, changed) = Take(wait);
            if (timer is null)
            {
                await changed.WaitAsync(TestTimeout.Value, cancellationToken);
                continue;
            }

            timer.Fire();
            return;
        }
    }

    /// <summary>Advances the timestamp without firing timers.</summary>
    public void Advance(TimeSpan time)
    {
        lock (_gate)
            _now += time;
    }

    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period)
    {
        var timer = new Timer(this, () => callback(state));
        timer.Change(dueTime, period);
        return timer;
    }

    /// <summary>Returns a timer of this duration, if any, and a task that completes when timers change.</summary>
    private (Timer? Timer, Task Changed) Take(TimeSpan wait)
    {
        lock (_gate)
        {
            if (_waiting.Find(timer => timer.Wait == wait) is not { } found)
                return (null, _changed.Task);
            _waiting.Remove(found);
            _now += wait;
            return (found, _changed.Task);
        }
    }

    private void Set(Timer timer, TimeSpan wait)
    {
        lock (_gate)
        {
            _waiting.Remove(timer);
            if (wait != Timeout.InfiniteTimeSpan)
                _waiting.Add(timer);
            timer.Wait = wait;
            _changed.SetResult();
            _changed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        }
    }

    private sealed class Timer(ManualTimeProvider time, Action fire) : ITimer
    {
        public TimeSpan Wait { get; set; } = Timeout.InfiniteTimeSpan;

        public void Fire() => fire();

        public bool Change(TimeSpan dueTime, TimeSpan period)
        {
            time.Set(this, dueTime);
            return true;
        }

        public void Dispose() => time.Set(this, Timeout.InfiniteTimeSpan);

        public ValueTask DisposeAsync()
        {
            Dispose();
            return ValueTask.CompletedTask;
        }
    }
}
