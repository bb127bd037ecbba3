using System.Diagnostics.CodeAnalysis;
using Python.Runtime;

namespace Quantra.Client.Embedded;

/// <summary>The Python of this process and the thread that starts all work in it.</summary>
/// <remarks>
/// Work items run in order on a dedicated thread. Each holds the GIL from start to end, so no await happens while the GIL is held, and no
/// caller's thread waits for Python. The host lives as long as the process because Python.NET cannot start twice; predictors come and go.
/// </remarks>
internal sealed class PythonHost
{
    /// <summary>How long a Python thread runs before it yields the GIL; the same value as in the server.</summary>
    private const double SwitchIntervalSeconds = 0.0002;

    /// <summary>Calls that may wait to be started. The service limits the started ones.</summary>
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
        new Thread(Run) { IsBackground = true, Name = "quantra-python" }.Start();
    }

    /// <summary>Threads for long work, which calls should not wait for.</summary>
    public PythonThreads Threads { get; } = new();

    public bool IsFull
    {
        get
        {
            lock (_work)
                return _work.Count >= Capacity;
        }
    }

    /// <summary>Starts Python, or returns the running one.</summary>
    /// <param name="environment">Full path of a virtual environment.</param>
    /// <remarks>A problem found before Python starts leaves the process unchanged, so that another environment can be tried.</remarks>
    /// <exception cref="QuantraException">
    /// CONFIGURATION_INVALID: Python does not start, or is already running from another environment.
    /// </exception>
    public static async Task<PythonHost> StartAsync(string environment)
    {
        var host = GetOrStart(environment);
        await host._started.Task.ConfigureAwait(false);
        return await host.IsEnvironmentAsync(environment).ConfigureAwait(false)
            ? host
            : throw PythonEnvironment.Refusal(
                $"this process already runs the Python of {host._environment} and cannot start that of {environment}; "
                + "use only one environment per process");
    }

    /// <summary>Queues work for the Python thread.</summary>
    /// <param name="work">Runs while the thread holds the GIL.</param>
    /// <param name="fail">Receives an exception of the work.</param>
    public void Post(Action work, Action<Exception> fail)
    {
        lock (_work)
        {
            _work.Enqueue(() => RunWithGil(work, fail));
            Monitor.Pulse(_work);
        }
    }

    /// <summary>Queues work for the Python thread and returns its result.</summary>
    /// <param name="work">Runs while the thread holds the GIL.</param>
    /// <exception cref="QuantraException">INTERNAL: Python raised an exception that is not one of Quantra's.</exception>
    public Task<T> RunAsync<T>(Func<T> work)
    {
        var done = new TaskCompletionSource<T>(TaskCreationOptions.RunContinuationsAsynchronously);
        Post(() => done.TrySetResult(work()), error => done.TrySetException(error));
        return done.Task;
    }

    /// <summary>Runs Python's garbage collector and exempts what remains from it, after models were loaded or released.</summary>
    public static void FreezeGarbage()
    {
        using var gc = Py.Import("gc");
        gc.InvokeMethod("unfreeze").Dispose();
        gc.InvokeMethod("collect").Dispose();
        gc.InvokeMethod("freeze").Dispose();
    }

    private static PythonHost GetOrStart(string environment)
    {
        lock (Gate)
            return _running ??= new PythonHost(environment, PythonLibrary.Find(environment));
    }

    /// <summary>Whether a path is the running environment. Python's file system functions decide, so that links do not matter.</summary>
    private async Task<bool> IsEnvironmentAsync(string environment) =>
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
            return false; // the running environment was deleted
        }
    }

    [SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to the caller")]
    private void Run()
    {
        try
        {
            Start();
            _started.SetResult();
        }
        catch (Exception error)
        {
            _started.SetException(PythonEnvironment.Refusal(
                $"the Python of {_environment} failed to start: {error.Message}; Python can start only once per process, "
                + "so repair the environment or choose another one, and restart this program",
                error));
            return;
        }

        while (true)
            Take()();
    }

    /// <summary>Waits without spinning, which would take CPU time from computing threads.</summary>
    private Action Take()
    {
        lock (_work)
        {
            while (_work.Count == 0 || _isStopped)
                Monitor.Wait(_work);
            return _work.Dequeue();
        }
    }

    /// <summary>Stops after the work that is queued now.</summary>
    /// <remarks>
    /// At process exit, Python.NET runs Python's garbage collector 80 times. That takes 8 seconds with torch loaded, but only 0.1 s if
    /// its objects are frozen.
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
        // added before Python.NET's handler, because handlers run in the order of their addition
        AppDomain.CurrentDomain.ProcessExit += (_, _) => Threads.End(_started.Task, StopAsync);
        Environment.SetEnvironmentVariable("PYTHONNET_VENV", _environment);
        Runtime.PythonDLL = _library;
        PythonEngine.Initialize(initSigs: false);
        using (var sys = Py.Import("sys"))
        using (var seconds = new PyFloat(SwitchIntervalSeconds))
            sys.InvokeMethod("setswitchinterval", seconds).Dispose();
        PythonEngine.BeginAllowThreads();
    }

    /// <summary>Runs work on this thread while it holds the GIL.</summary>
    /// <param name="work">The work.</param>
    /// <param name="fail">Receives an exception of the work.</param>
    [SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to the caller")]
    public static void RunWithGil(Action work, Action<Exception> fail)
    {
        using var gil = Py.GIL();
        try
        {
            work();
        }
        catch (PythonException error)
        {
            const string Message = "the predictor failed on this call, which is a bug in Quantra; see the inner exception";
            var cause = new InvalidOperationException(error.Format());
            fail(new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, Message).ToException(cause));
        }
        catch (Exception error)
        {
            fail(error);
        }
    }
}
