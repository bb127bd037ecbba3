using System.Collections.Concurrent;

namespace Quantra.Client.Tests;

/// <summary>A thread to which everything returns that awaits on it, as that of a user interface.</summary>
internal sealed class SingleThreadContext : SynchronizationContext, IDisposable
{
    /// <summary>After which a thread that is blocked is taken for one that waits for itself.</summary>
    private static readonly TimeSpan Longest = TimeSpan.FromSeconds(30);

    private readonly BlockingCollection<(SendOrPostCallback Call, object? State)> _calls = [];
    private readonly Thread _thread;

    public SingleThreadContext()
    {
        _thread = new Thread(Run) { IsBackground = true, Name = "user interface" };
        _thread.Start();
    }

    /// <summary>Whether the caller runs on it.</summary>
    public bool IsCurrent => Thread.CurrentThread == _thread;

    public override void Post(SendOrPostCallback d, object? state) => _calls.Add((d, state));

    public override void Send(SendOrPostCallback d, object? state) => throw new NotSupportedException("nobody should wait for this thread");

    /// <summary>Begins work on it, and waits for its end elsewhere.</summary>
    /// <exception cref="TimeoutException">The thread stands still.</exception>
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
                // told
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
