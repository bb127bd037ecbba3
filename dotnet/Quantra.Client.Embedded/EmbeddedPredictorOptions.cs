using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>What an <see cref="EmbeddedPredictor"/> loads and how it runs it.</summary>
public sealed record EmbeddedPredictorOptions
{
    private readonly TimeSpan _timeout = CallTimeout.Default;
    private readonly TimeSpan _graceTime = TimeSpan.FromSeconds(5);
    private readonly int _maxInFlight = CallSettings.DefaultMaxInFlight;
    private readonly int _maxBatchRows = 256;
    private readonly int _threads = 1;

    /// <summary>Folder of NAME/VERSION artifacts, as for <c>quantra serve --models</c>.</summary>
    public required string Models { get; init; }

    /// <summary>
    /// Virtual environment in which quantra is installed; null = the one that the environment variable QUANTRA_VENV or VIRTUAL_ENV
    /// names.
    /// </summary>
    /// <remarks>A process can run only one Python, so all its predictors must use the same environment.</remarks>
    public string? PythonEnvironment { get; init; }

    /// <summary>"auto", "cpu", "cuda" or "cuda:N".</summary>
    public string Device { get; init; } = "auto";

    /// <summary>Largest number of rows in one forward pass.</summary>
    /// <value>At least 1; 256 by default.</value>
    public int MaxBatchRows
    {
        get => _maxBatchRows;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _maxBatchRows = value;
        }
    }

    /// <summary>CPU threads per forward pass, for the whole process. One is fastest for small networks.</summary>
    /// <value>At least 1; 1 by default.</value>
    public int Threads
    {
        get => _threads;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _threads = value;
        }
    }

    /// <summary>
    /// Longest wait for a response; in a stream or session, per request. A call that is still queued at the timeout is dropped. A running
    /// one ends soon after.
    /// </summary>
    /// <value>Positive, at most a day; 30 seconds by default.</value>
    public TimeSpan Timeout
    {
        get => _timeout;
        init => _timeout = CallTimeout.Validate(value);
    }

    /// <summary>Largest number of requests of one stream whose results you have not read yet.</summary>
    /// <value>At least 1; 32 by default.</value>
    public int MaxInFlight
    {
        get => _maxInFlight;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _maxInFlight = value;
        }
    }

    /// <summary>How long disposal waits for running calls before it cancels them.</summary>
    /// <value>Positive, at most a day; 5 seconds by default.</value>
    public TimeSpan GraceTime
    {
        get => _graceTime;
        init => _graceTime = CallTimeout.Validate(value);
    }
}
