namespace Quantra.Client.Wire;

/// <summary>The point in time at which a call expires.</summary>
internal readonly struct Deadline
{
    private readonly long _tickMs;

    private Deadline(long tickMs, DateTime utc) => (_tickMs, AtUtc) = (tickMs, utc);

    /// <summary>The deadline as transports take it.</summary>
    public DateTime AtUtc { get; }

    public bool HasPassed => Remaining <= TimeSpan.Zero;

    /// <summary>The remaining time; negative after the deadline.</summary>
    public TimeSpan Remaining => TimeSpan.FromMilliseconds(_tickMs - Environment.TickCount64);

    public static Deadline After(TimeSpan time) => new(Environment.TickCount64 + (long)time.TotalMilliseconds, DateTime.UtcNow + time);
}
