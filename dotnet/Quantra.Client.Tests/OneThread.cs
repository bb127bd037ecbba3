using System.Collections.Concurrent;

namespace Quantra.Client.Tests;

/// <summary>A thread that runs what is posted to it, one after the other, as that of a window does.</summary>
internal sealed class OneThread : SynchronizationContext
{
    private readonly BlockingCollection<(SendOrPostCallback Work, object? State)> _posted = [];

    /// <summary>Runs a piece of work on a thread of its own, to which each await comes back.</summary>
    public static Task RunAsync(Func<Task> work)
    {
        var done = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var thread = new Thread(() => new OneThread().Run(work, done)) { IsBackground = true, Name = "window" };
        thread.Start();
        return done.Task;
    }

    public override void Post(SendOrPostCallback d, object? state) => _posted.Add((d, state));

    public override void Send(SendOrPostCallback d, object? state) => throw new NotSupportedException("nobody may wait for this thread");

    private void Run(Func<Task> work, TaskCompletionSource done)
    {
        SetSynchronizationContext(this);
        var working = work();
        working.ContinueWith(_ => _posted.CompleteAdding(), TaskScheduler.Default);
        foreach (var (one, state) in _posted.GetConsumingEnumerable())
            one(state);
        done.SetFromTask(working);
    }
}
