namespace Quantra.Client.Hosting.Tests;

/// <summary>A clock whose timers throw.</summary>
internal sealed class BrokenTimeProvider : TimeProvider
{
    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period) =>
        throw new NotSupportedException("a broken clock");
}
