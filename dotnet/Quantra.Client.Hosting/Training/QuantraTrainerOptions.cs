namespace Quantra.Client.Hosting;

/// <summary>Options of a <see cref="QuantraTrainer"/>.</summary>
public sealed class QuantraTrainerOptions
{
    private static readonly TimeSpan Longest = TimeSpan.FromDays(1);
    private TimeSpan _graceTime = TimeSpan.FromSeconds(30);

    /// <inheritdoc cref="QuantraServerOptions.PythonEnvironment"/>
    public string? PythonEnvironment { get; set; }

    /// <summary>Environment variables of the training processes, in addition to those of this process.</summary>
    public IDictionary<string, string> Environment { get; } = new Dictionary<string, string>();

    /// <summary>How long a cancelled training may take to write a checkpoint before it is killed.</summary>
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
