namespace Quantra.Client.Hosting;

/// <summary>What a server of the program's own serves, how its process is started, and how it is kept running.</summary>
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

    /// <summary>Folder of NAME/VERSION artifacts, as for <c>quantra serve --models</c>; it must be given.</summary>
    /// <remarks>A relative path counts from the current folder of this process, which is seldom that of the program.</remarks>
    public string Models { get; set; } = "";

    /// <summary>
    /// Virtual environment in which quantra is installed; null = that of the environment variable QUANTRA_VENV, or else of
    /// VIRTUAL_ENV, or else <c>.venv</c> beside the program.
    /// </summary>
    public string? PythonEnvironment { get; set; }

    /// <summary>"auto", "cpu", "cuda" or "cuda:N".</summary>
    public string Device { get; set; } = "auto";

    /// <summary>CPU threads of one forward pass.</summary>
    /// <value>At least 1; 1 by default.</value>
    public int Threads
    {
        get => _threads;
        set => _threads = AtLeast(1, value);
    }

    /// <summary>Largest number of rows in one forward pass.</summary>
    /// <value>At least 1; 256 by default.</value>
    public int MaxBatchRows
    {
        get => _maxBatchRows;
        set => _maxBatchRows = AtLeast(1, value);
    }

    /// <summary>Further flags of <c>quantra serve</c>, such as "--watch", or "--lock" and then its file.</summary>
    /// <remarks>Not those that are set here, nor those by which it would listen elsewhere or with TLS.</remarks>
    public IList<string> Arguments { get; } = [];

    /// <summary>Variables in the environment of the server's process, beside those of this one.</summary>
    public IDictionary<string, string> Environment { get; } = new Dictionary<string, string>();

    /// <summary>Longest wait from the start of the process until it answers, which it does once the models are loaded.</summary>
    /// <value>Positive, at most a day; 2 minutes by default: the first start after an installation or a reboot is the slowest.</value>
    public TimeSpan StartTimeout
    {
        get => _startTimeout;
        set => _startTimeout = Positive(value);
    }

    /// <summary>How long the server, once it is told to end, may take until it is ended by force.</summary>
    /// <value>Positive, at most a day; 10 seconds by default. It takes 5 at most unless it hangs.</value>
    public TimeSpan GraceTime
    {
        get => _graceTime;
        set => _graceTime = Positive(value);
    }

    /// <summary>How often the server is started again within <see cref="RestartWindow"/>, until it has failed.</summary>
    /// <value>At least 0; 3 by default.</value>
    public int MaxRestarts
    {
        get => _maxRestarts;
        set => _maxRestarts = AtLeast(0, value);
    }

    /// <summary>The time in which restarts are counted.</summary>
    /// <value>Positive, at most a day; a minute by default.</value>
    public TimeSpan RestartWindow
    {
        get => _restartWindow;
        set => _restartWindow = Positive(value);
    }

    /// <summary>
    /// The wait before the second restart within <see cref="RestartWindow"/>; it doubles with each further one. The first comes at once.
    /// </summary>
    /// <value>Positive, at most a day; a second by default.</value>
    public TimeSpan RestartDelay
    {
        get => _restartDelay;
        set => _restartDelay = Positive(value);
    }

    /// <summary>The longest wait before a restart.</summary>
    /// <value>Positive, at most a day; 15 seconds by default.</value>
    public TimeSpan MaxRestartDelay
    {
        get => _maxRestartDelay;
        set => _maxRestartDelay = Positive(value);
    }

    /// <summary>How often the server is asked whether it is well.</summary>
    /// <value>Positive, at most a day; 5 seconds by default.</value>
    public TimeSpan ProbeInterval
    {
        get => _probeInterval;
        set => _probeInterval = Positive(value);
    }

    /// <summary>Longest wait for the answer to that.</summary>
    /// <value>Positive, at most a day; 5 seconds by default.</value>
    public TimeSpan ProbeTimeout
    {
        get => _probeTimeout;
        set => _probeTimeout = Positive(value);
    }

    /// <summary>
    /// How often in a row the server may leave that unanswered: from the first time on it is degraded, and at the last its process is
    /// ended by force and started again.
    /// </summary>
    /// <value>At least 1; 3 by default.</value>
    public int MaxMissedProbes
    {
        get => _maxMissedProbes;
        set => _maxMissedProbes = AtLeast(1, value);
    }

    /// <summary>
    /// Whether the start of the host waits until the server is ready, and fails if the server does. Otherwise the host starts at once,
    /// which a user interface wants: calls wait for the server by themselves.
    /// </summary>
    public bool HostWaitsUntilReady { get; set; }

    private static int AtLeast(int least, int value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(value, least);
        return value;
    }

    private static TimeSpan Positive(TimeSpan value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThanOrEqual(value, TimeSpan.Zero);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value, Longest);
        return value;
    }
}
