namespace Quantra.Client.Hosting;

/// <summary>How trainings are run.</summary>
public sealed class QuantraTrainerOptions
{
    private static readonly TimeSpan Longest = TimeSpan.FromDays(1);
    private TimeSpan _graceTime = TimeSpan.FromSeconds(30);

    /// <inheritdoc cref="QuantraServerOptions.PythonEnvironment"/>
    public string? PythonEnvironment { get; set; }

    /// <summary>Variables in the environment of the trainings' processes, beside those of this one.</summary>
    public IDictionary<string, string> Environment { get; } = new Dictionary<string, string>();

    /// <summary>How long a training, once it is cancelled, may take to write a checkpoint until it is ended by force.</summary>
    /// <value>Positive, at most a day; 30 seconds by default.</value>
    public TimeSpan GraceTime
    {
        get => _graceTime;
        set
        {
            ArgumentOutOfRangeException.ThrowIfLessThanOrEqual(value, TimeSpan.Zero);
            ArgumentOutOfRangeException.ThrowIfGreaterThan(value, Longest);
            _graceTime = value;
        }
    }
}
