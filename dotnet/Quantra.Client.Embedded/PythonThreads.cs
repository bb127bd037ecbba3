using System.Diagnostics;
using Python.Runtime;

namespace Quantra.Client.Embedded;

/// <summary>Runs long work in Python on dedicated threads, and ends all work when the process exits. Thread-safe.</summary>
/// <remarks>
/// At process exit, Python.NET tears down its types before the system unloads the libraries. Code that still runs would crash or hang, so
/// all work is ended first.
/// </remarks>
internal sealed class PythonThreads
{
    /// <summary>After this time the process is killed, for example while a library takes long to load.</summary>
    private static readonly TimeSpan Longest = TimeSpan.FromSeconds(10);

    private static readonly TimeSpan BetweenInterrupts = TimeSpan.FromMilliseconds(20);

    private readonly object _gate = new();
    private readonly HashSet<Func<Task>> _predictors = [];
    private readonly HashSet<ulong> _openings = [];
    private int _running;
    private bool _isEnding;

    /// <summary>Runs work on a new thread.</summary>
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
            PythonHost.RunWithGil(() => done.TrySetResult(work()), error => done.TrySetException(error));
            Interlocked.Decrement(ref _running);
        }
    }

    /// <summary>Opens a predictor. The exit of the process interrupts the opening.</summary>
    /// <param name="open">Runs while its thread holds the GIL.</param>
    /// <exception cref="QuantraException">As from <see cref="RunAsync"/>. UNAVAILABLE: the process is exiting.</exception>
    public Task<T> OpenAsync<T>(Func<T> open) => RunAsync(() => RunInterruptibly(open));

    /// <summary>Registers an open predictor.</summary>
    /// <param name="end">Cancels its calls and closes it.</param>
    public void Add(Func<Task> end)
    {
        lock (_gate)
            _predictors.Add(end);
    }

    /// <summary>Removes a closed predictor.</summary>
    /// <param name="end">The registered delegate.</param>
    public void Remove(Func<Task> end)
    {
        lock (_gate)
            _predictors.Remove(end);
    }

    /// <summary>Ends all work and waits for its end.</summary>
    /// <param name="started">Completes when Python has started or failed to start.</param>
    /// <param name="stop">Stops the host's thread.</param>
    public void End(Task started, Func<Task> stop)
    {
        // Blocks the thread that exits the process; the work runs on pool threads.
        var ended = Task.Run(() => EndAsync(started, stop));
        if (!((IAsyncResult)ended).AsyncWaitHandle.WaitOne(Longest))
            Process.GetCurrentProcess().Kill();
    }

    private async Task EndAsync(Task started, Func<Task> stop)
    {
        await started.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        if (!started.IsCompletedSuccessfully)
            return;
        var closed = Task.WhenAll(MarkEnding().Select(end => end()));
        while (Volatile.Read(ref _running) > 0)
        {
            InterruptOpenings();
            await Task.Delay(BetweenInterrupts).ConfigureAwait(false);
        }

        await closed.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        await stop().ConfigureAwait(false);
    }

    private Func<Task>[] MarkEnding()
    {
        lock (_gate)
        {
            _isEnding = true;
            return [.. _predictors];
        }
    }

    /// <summary>Raises KeyboardInterrupt in each opening, as soon as it runs Python code.</summary>
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
                throw new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "the process is exiting").ToException();
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
