using System.Diagnostics;
using Python.Runtime;

namespace Quantra.Client.Embedded;

/// <summary>Long work in Python, each piece on a thread of its own, and how all work ends with the process. Thread-safe.</summary>
/// <remarks>
/// When a process ends, Python.NET takes its types apart, and then the system the libraries: what still ran in them would
/// crash, or wait for ever. So everything is brought to an end before.
/// </remarks>
internal sealed class PythonThreads
{
    /// <summary>After which the process is ended by force, as where a library takes its time to load.</summary>
    private static readonly TimeSpan Longest = TimeSpan.FromSeconds(10);

    private static readonly TimeSpan BetweenInterrupts = TimeSpan.FromMilliseconds(20);

    private readonly object _gate = new();
    private readonly HashSet<Func<Task>> _predictors = [];
    private readonly HashSet<ulong> _openings = [];
    private int _running;
    private bool _isEnding;

    /// <summary>Runs a piece of work.</summary>
    /// <param name="work">Runs while its thread holds the GIL.</param>
    /// <exception cref="QuantraException">INTERNAL: Python raised an exception that is not one of Quantra's.</exception>
    public Task<T> RunAsync<T>(Func<T> work)
    {
        var done = new TaskCompletionSource<T>(TaskCreationOptions.RunContinuationsAsynchronously);
        Interlocked.Increment(ref _running);
        new Thread(Run) { IsBackground = true, Name = "quantra-models" }.Start();
        return done.Task;

        void Run()
        {
            PythonHost.Guard(() => done.TrySetResult(work()), error => done.TrySetException(error));
            Interlocked.Decrement(ref _running);
        }
    }

    /// <summary>Opens a predictor; the end of the process interrupts it.</summary>
    /// <param name="open">Runs while its thread holds the GIL.</param>
    /// <exception cref="QuantraException">As from <see cref="RunAsync"/>, and UNAVAILABLE: the process is ending.</exception>
    public Task<T> OpenAsync<T>(Func<T> open) => RunAsync(() => RunInterruptibly(open));

    /// <summary>A predictor was opened.</summary>
    /// <param name="end">Cancels its calls and closes it.</param>
    public void Add(Func<Task> end)
    {
        lock (_gate)
            _predictors.Add(end);
    }

    /// <summary>A predictor was closed.</summary>
    /// <param name="end">As it was added.</param>
    public void Remove(Func<Task> end)
    {
        lock (_gate)
            _predictors.Remove(end);
    }

    /// <summary>Ends all work, and waits for it.</summary>
    /// <param name="started">Done when Python has started, or could not.</param>
    /// <param name="stop">Ends the starting of calls.</param>
    public void End(Task started, Func<Task> stop)
    {
        // The thread on which a process ends has nothing to do but to wait; the work is done on those of the pool.
        var ended = Task.Run(() => EndAsync(started, stop));
        if (!((IAsyncResult)ended).AsyncWaitHandle.WaitOne(Longest))
            Process.GetCurrentProcess().Kill();
    }

    private async Task EndAsync(Task started, Func<Task> stop)
    {
        await started.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        if (!started.IsCompletedSuccessfully)
            return;
        var closed = Task.WhenAll(Begin().Select(end => end()));
        while (Volatile.Read(ref _running) > 0)
        {
            InterruptOpenings();
            await Task.Delay(BetweenInterrupts).ConfigureAwait(false);
        }

        await closed.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        await stop().ConfigureAwait(false);
    }

    private Func<Task>[] Begin()
    {
        lock (_gate)
        {
            _isEnding = true;
            return [.. _predictors];
        }
    }

    /// <summary>Raises KeyboardInterrupt in each, as soon as it runs Python's own code.</summary>
    private void InterruptOpenings()
    {
        using var gil = Py.GIL();
        lock (_gate)
        {
            foreach (var thread in _openings)
                _ = PythonEngine.Interrupt(thread);
        }
    }

    private T RunInterruptibly<T>(Func<T> work)
    {
        var thread = PythonEngine.GetPythonThreadID();
        lock (_gate)
        {
            if (_isEnding)
                throw new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "the process is ending").ToException();
            _openings.Add(thread);
        }

        try
        {
            return work();
        }
        finally
        {
            lock (_gate)
                _openings.Remove(thread);
        }
    }
}
