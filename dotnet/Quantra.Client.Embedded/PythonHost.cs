using System.Diagnostics.CodeAnalysis;
using Python.Runtime;

namespace Quantra.Client.Embedded;

/// <summary>The Python of this process, and the thread that starts all work in it.</summary>
/// <remarks>
/// Work starts in order on a thread of its own, each piece entirely while the thread holds the GIL, so no await can happen
/// while it is held and no caller's thread waits for Python. The host lives as long as the process, because Python.NET
/// cannot start a second time; predictors come and go.
/// </remarks>
internal sealed class PythonHost
{
    /// <summary>How long a Python thread runs before others get their turn; the same value as the server's.</summary>
    private const double SwitchIntervalSeconds = 0.0002;

    /// <summary>Calls that may wait to start; the service has its own limits for those that have.</summary>
    private const int Capacity = 1024;

    private static readonly object Gate = new();
    private static PythonHost? _running;

    private readonly Queue<Action> _work = [];
    private readonly TaskCompletionSource _started = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly string _environment;
    private readonly string _library;
    private bool _isStopped;

    private PythonHost(string environment, string library)
    {
        (_environment, _library) = (environment, library);
        new Thread(Serve) { IsBackground = true, Name = "quantra-python" }.Start();
    }

    /// <summary>For work that takes long, so that calls need not wait for it.</summary>
    public PythonThreads Threads { get; } = new();

    /// <summary>Whether no more calls should be queued.</summary>
    public bool IsFull
    {
        get
        {
            lock (_work)
                return _work.Count >= Capacity;
        }
    }

    /// <summary>Starts Python, or joins the one that is running.</summary>
    /// <param name="environment">Full path of a virtual environment.</param>
    /// <remarks>What can be told before Python begins leaves the process as it was, and another environment may follow.</remarks>
    /// <exception cref="QuantraException">
    /// CONFIGURATION_INVALID: Python does not start, or is already running from another environment.
    /// </exception>
    public static async Task<PythonHost> StartAsync(string environment)
    {
        var host = Running(environment);
        await host._started.Task.ConfigureAwait(false);
        return await host.IsOfAsync(environment).ConfigureAwait(false)
            ? host
            : throw PythonEnvironment.Refusal(
                $"this process already runs the Python of {host._environment} and cannot start that of {environment}; "
                + "use one environment per process");
    }

    /// <summary>Queues a piece of work for the Python thread.</summary>
    /// <param name="work">Runs while the thread holds the GIL.</param>
    /// <param name="fail">Called with an exception.</param>
    public void Post(Action work, Action<Exception> fail)
    {
        lock (_work)
        {
            _work.Enqueue(() => Guard(work, fail));
            Monitor.Pulse(_work);
        }
    }

    /// <summary>Queues a piece of work for the Python thread, and waits for what it gives.</summary>
    /// <param name="work">Runs while the thread holds the GIL.</param>
    /// <exception cref="QuantraException">INTERNAL: Python raised an exception that is not one of Quantra's.</exception>
    public Task<T> RunAsync<T>(Func<T> work)
    {
        var done = new TaskCompletionSource<T>(TaskCreationOptions.RunContinuationsAsynchronously);
        Post(() => done.TrySetResult(work()), error => done.TrySetException(error));
        return done.Task;
    }

    /// <summary>Collects Python's garbage, and takes what lasts out of the collector's sight; after models were loaded or released.</summary>
    public static void Settle()
    {
        using var gc = Py.Import("gc");
        gc.InvokeMethod("unfreeze").Dispose();
        gc.InvokeMethod("collect").Dispose();
        gc.InvokeMethod("freeze").Dispose();
    }

    private static PythonHost Running(string environment)
    {
        lock (Gate)
            return _running ??= new PythonHost(environment, PythonLibrary.Find(environment));
    }

    /// <summary>Whether an environment is the one that runs, however it is written: the file system decides, as Python sees it.</summary>
    private async Task<bool> IsOfAsync(string environment) =>
        environment == _environment || await Threads.RunAsync(() => IsSame(environment, _environment)).ConfigureAwait(false);

    private static bool IsSame(string one, string other)
    {
        using var path = Py.Import("os.path");
        using var first = new PyString(one);
        using var second = new PyString(other);
        try
        {
            using var isSame = path.InvokeMethod("samefile", first, second);
            return isSame.IsTrue();
        }
        catch (PythonException error) when (error.Type.Name == "FileNotFoundError")
        {
            return false; // that of the Python which runs was removed
        }
    }

    [SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to the caller who waits")]
    private void Serve()
    {
        try
        {
            Start();
            _started.SetResult();
        }
        catch (Exception error)
        {
            _started.SetException(PythonEnvironment.Refusal(
                $"the Python of {_environment} does not start: {error.Message}; it had begun, and a process can begin only "
                + "once: mend it, or choose another environment, and start this program again",
                error));
            return;
        }

        while (true)
            Next()();
    }

    /// <summary>Waits without spinning, which would take CPU time from the threads that compute.</summary>
    private Action Next()
    {
        lock (_work)
        {
            while (_work.Count == 0 || _isStopped)
                Monitor.Wait(_work);
            return _work.Dequeue();
        }
    }

    /// <summary>Starts no more work, once all that waits was started.</summary>
    /// <remarks>
    /// At the end of the process Python.NET collects Python's garbage 80 times, which takes 8 seconds with torch loaded, or
    /// half loaded, and a tenth of a second where the collector sees nothing of it.
    /// </remarks>
    private Task StopAsync()
    {
        var stopped = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        Post(Stop, error => stopped.TrySetException(error));
        return stopped.Task;

        void Stop()
        {
            using var gc = Py.Import("gc");
            gc.InvokeMethod("freeze").Dispose();
            lock (_work)
                _isStopped = true;
            stopped.SetResult();
        }
    }

    private void Start()
    {
        // Before Python.NET adds its own: handlers run in the order in which they were added.
        AppDomain.CurrentDomain.ProcessExit += (_, _) => Threads.End(_started.Task, StopAsync);
        Environment.SetEnvironmentVariable("PYTHONNET_VENV", _environment);
        Runtime.PythonDLL = _library;
        PythonEngine.Initialize(initSigs: false);
        using (var sys = Py.Import("sys"))
        using (var seconds = new PyFloat(SwitchIntervalSeconds))
            sys.InvokeMethod("setswitchinterval", seconds).Dispose();
        PythonEngine.BeginAllowThreads();
    }

    /// <summary>Runs a piece of work on this thread, which must be a Python thread or free to wait for the GIL.</summary>
    /// <param name="work">Runs while the thread holds the GIL.</param>
    /// <param name="fail">Called with an exception.</param>
    [SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to the caller who waits")]
    public static void Guard(Action work, Action<Exception> fail)
    {
        using var gil = Py.GIL();
        try
        {
            work();
        }
        catch (PythonException error)
        {
            const string Message = "the predictor failed on this call, which is a bug of Quantra; the inner exception tells more";
            var cause = new InvalidOperationException(error.Format());
            fail(new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, Message).ToException(cause));
        }
        catch (Exception error)
        {
            fail(error);
        }
    }
}
