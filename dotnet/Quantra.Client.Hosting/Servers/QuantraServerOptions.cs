namespace Quantra.Client.Hosting;

/// <summary>What a supervised server serves, and how its process is started and supervised.</summary>
public sealed class QuantraServerOptions
{
    private static readonly TimeSpan Longest = TimeSpan.FromDays(1);

    private int _threads = 1;
    private int _maxBatchRows = 256;
    private TimeSpan _startTimeout = TimeSpan.FromMinutes(2);
    private TimeSpan _graceTime = TimeSpan.FromSeconds(10);
    private int _maxRestarts = 3;
    private TimeSpan _restartWindow = TimeSpan.FromMinutes(1);
    private TimeSpan _restartDelay = TimeSpan.FromSeconds(1);
    private TimeSpan _maxRestartDelay = TimeSpan.FromSeconds(15);
    private TimeSpan _probeInterval = TimeSpan.FromSeconds(5);
    private TimeSpan _probeTimeout = TimeSpan.FromSeconds(5);
    private int _maxMissedProbes = 3;

    /// <summary>Folder of NAME/VERSION artifacts, as for <c>quantra serve --models</c>. Required.</summary>
    /// <remarks>A relative path starts at the current folder of this process, which is often not the program's folder.</remarks>
    public string Models { get; set; } = "";

    /// <summary>
    /// Virtual environment in which quantra is installed; null = the one that the environment variable QUANTRA_VENV or VIRTUAL_ENV names, or
    /// else <c>.venv</c> in the program's folder.
    /// </summary>
    public string? PythonEnvironment { get; set; }

    /// <summary>"auto", "cpu", "cuda" or "cuda:N".</summary>
    public string Device { get; set; } = "auto";

    /// <summary>CPU threads per forward pass.</summary>
    /// <value>At least 1; 1 by default.</value>
    public int Threads
    {
        get => _threads;
        set => _threads = CheckAtLeast(1, value);
    }

    /// <summary>Largest number of rows in one forward pass.</summary>
    /// <value>At least 1; 256 by default.</value>
    public int MaxBatchRows
    {
        get => _maxBatchRows;
        set => _maxBatchRows = CheckAtLeast(1, value);
    }

    /// <summary>
    /// Ledger that records the forecasts and is read by <c>IForecastLedger</c>: a file, or the address of a PostgreSQL database, as for
    /// <c>quantra serve --ledger</c>; null = none.
    /// </summary>
    public string? Ledger { get; set; }

    /// <summary>
    /// Whether this program can change what the server serves, by <c>ModelAdminClient</c> and <c>IModelLifecycle</c>. The lifecycle needs a
    /// <see cref="Ledger"/>.
    /// </summary>
    /// <value>False by default.</value>
    public bool AcceptsAdminCalls { get; set; }

    /// <summary>More flags of <c>quantra serve</c>, for example "--watch", or "--lock" followed by its file.</summary>
    /// <remarks>Flags that have a property here and flags that change the address or TLS are not allowed.</remarks>
    public IList<string> Arguments { get; } = [];

    /// <summary>Environment variables of the server process, in addition to those of this process.</summary>
    public IDictionary<string, string> Environment { get; } = new Dictionary<string, string>();

    /// <summary>Longest wait for a started process to become ready, which includes loading the models.</summary>
    /// <value>Positive, at most a day; 2 minutes by default. The first start after an installation or reboot is the slowest.</value>
    public TimeSpan StartTimeout
    {
        get => _startTimeout;
        set => _startTimeout = CheckPositive(value);
    }

    /// <summary>How long a stopping server may take before it is killed.</summary>
    /// <value>Positive, at most a day; 10 seconds by default. A healthy server takes at most 5.</value>
    public TimeSpan GraceTime
    {
        get => _graceTime;
        set => _graceTime = CheckPositive(value);
    }

    /// <summary>Largest number of restarts within <see cref="RestartWindow"/>. After that the server has failed.</summary>
    /// <value>At least 0; 3 by default.</value>
    public int MaxRestarts
    {
        get => _maxRestarts;
        set => _maxRestarts = CheckAtLeast(0, value);
    }

    /// <summary>Period over which restarts are counted.</summary>
    /// <value>Positive, at most a day; a minute by default.</value>
    public TimeSpan RestartWindow
    {
        get => _restartWindow;
        set => _restartWindow = CheckPositive(value);
    }

    /// <summary>Delay before the second restart within <see cref="RestartWindow"/>. It doubles with each further one; the first is immediate.</summary>
    /// <value>Positive, at most a day; a second by default.</value>
    public TimeSpan RestartDelay
    {
        get => _restartDelay;
        set => _restartDelay = CheckPositive(value);
    }

    /// <summary>Longest delay before a restart.</summary>
    /// <value>Positive, at most a day; 15 seconds by default.</value>
    public TimeSpan MaxRestartDelay
    {
        get => _maxRestartDelay;
        set => _maxRestartDelay = CheckPositive(value);
    }

    /// <summary>Time between health probes.</summary>
    /// <value>Positive, at most a day; 5 seconds by default.</value>
    public TimeSpan ProbeInterval
    {
        get => _probeInterval;
        set => _probeInterval = CheckPositive(value);
    }

    /// <summary>Longest wait for the response to a probe.</summary>
    /// <value>Positive, at most a day; 5 seconds by default.</value>
    public TimeSpan ProbeTimeout
    {
        get => _probeTimeout;
        set => _probeTimeout = CheckPositive(value);
    }

    /// <summary>
    /// How many probes in a row may stay unanswered. The server is degraded after the first one. After the last one its process is killed and
    /// restarted.
    /// </summary>
    /// <value>At least 1; 3 by default.</value>
    public int MaxMissedProbes
    {
        get => _maxMissedProbes;
        set => _maxMissedProbes = CheckAtLeast(1, value);
    }

    /// <summary>
    /// Whether the host waits at startup until the server is ready, and fails if the server fails. If false, the host starts at once and calls
    /// wait for the server, which suits a user interface.
    /// </summary>
    public bool HostWaitsUntilReady { get; set; }

    private static int CheckAtLeast(int least, int value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(value, least);
        return value;
    }

    private static TimeSpan CheckPositive(TimeSpan value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThanOrEqual(value, TimeSpan.Zero);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value, Longest);
        return value;
    }
}
