namespace Quantra.Client.Hosting.Tests;

/// <summary>Time with which nobody can wait.</summary>
internal sealed class BrokenTime : TimeProvider
{
    public override ITimer CreateTimer(TimerCallback callback, object? state, TimeSpan dueTime, TimeSpan period) =>
        throw new NotSupportedException("a broken clock");
}
