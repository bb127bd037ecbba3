namespace Quantra.Client.Wire;

/// <summary>How long a call may take, over gRPC and in this process alike.</summary>
internal static class CallTimeout
{
    /// <summary>Unless the caller sets another.</summary>
    public static readonly TimeSpan Default = TimeSpan.FromSeconds(30);

    private static readonly TimeSpan Longest = TimeSpan.FromDays(1);

    /// <summary>The value itself, if it is positive and at most a day.</summary>
    public static TimeSpan Checked(TimeSpan value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThanOrEqual(value, TimeSpan.Zero);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value, Longest);
        return value;
    }
}
