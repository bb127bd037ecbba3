namespace Quantra.Client.Wire;

/// <summary>When nobody waits any more.</summary>
internal readonly struct Deadline
{
    private readonly long _endsMs;

    private Deadline(long endsMs, DateTime atUtc) => (_endsMs, AtUtc) = (endsMs, atUtc);

    /// <summary>The same moment as transports want it; all calls of one deadline have the same.</summary>
    public DateTime AtUtc { get; }

    /// <summary>Whether it has passed.</summary>
    public bool IsOver => Left <= TimeSpan.Zero;

    /// <summary>How much time is left; negative once it has passed.</summary>
    public TimeSpan Left => TimeSpan.FromMilliseconds(_endsMs - Environment.TickCount64);

    /// <summary>The moment after so long a time.</summary>
    public static Deadline After(TimeSpan time) => new(Environment.TickCount64 + (long)time.TotalMilliseconds, DateTime.UtcNow + time);
}
