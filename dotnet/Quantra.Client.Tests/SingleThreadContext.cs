using System.Collections.Concurrent;

namespace Quantra.Client.Tests;

/// <summary>A synchronization context with one thread, like that of a user interface.</summary>
internal sealed class SingleThreadContext : SynchronizationContext, IDisposable
{
    /// <summary>A thread that is blocked for longer counts as deadlocked.</summary>
    private static readonly TimeSpan Longest = TimeSpan.FromMinutes(10);

    private readonly BlockingCollection<(SendOrPostCallback Call, object? State)> _calls = [];
    private readonly Thread _thread;

    public SingleThreadContext()
    {
        _thread = new Thread(Run) { IsBackground = true, Name = "user interface" };
        _thread.Start();
    }

    /// <summary>Whether the calling thread is the context's thread.</summary>
    public bool IsCurrent => Thread.CurrentThread == _thread;

    public override void Post(SendOrPostCallback d, object? state) => _calls.Add((d, state));

    public override void Send(SendOrPostCallback d, object? state) => throw new NotSupportedException("nothing may wait for this thread");

    /// <summary>Starts work on the thread and waits for its end.</summary>
    /// <exception cref="TimeoutException">The thread is deadlocked.</exception>
    public async Task RunAsync(Func<Task> work)
    {
        var done = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        Post(_ => _ = CompleteAsync(), null);
        await done.Task.WaitAsync(Longest);

        async Task CompleteAsync()
        {
            try
            {
                await work();
                done.SetResult();
            }
            catch (Exception failure) when (done.TrySetException(failure))
            {
                // passed on to the waiting test
            }
        }
    }

    public void Dispose()
    {
        _calls.CompleteAdding();
        _thread.Join(Longest);
        _calls.Dispose();
    }

    private void Run()
    {
        SetSynchronizationContext(this);
        foreach (var (call, state) in _calls.GetConsumingEnumerable())
            call(state);
    }
}
