namespace Quantra.Client.Wire;

/// <summary>Default and limits of call timeouts.</summary>
internal static class CallTimeout
{
    public static readonly TimeSpan Default = TimeSpan.FromSeconds(30);

    private static readonly TimeSpan Max = TimeSpan.FromDays(1);

    /// <summary>Returns the value if it is positive and at most a day.</summary>
    public static TimeSpan Validate(TimeSpan value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThanOrEqual(value, TimeSpan.Zero);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value, Max);
        return value;
    }
}
