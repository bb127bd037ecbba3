namespace Quantra.Client.Hosting.Servers;

/// <summary>Result of a health probe.</summary>
/// <param name="IsAnswered">Whether the server responded.</param>
/// <param name="Problem">What is wrong; null = the server is healthy.</param>
internal readonly record struct ProbeResult(bool IsAnswered, string? Problem)
{
    public static ProbeResult Healthy => new(IsAnswered: true, null);
}
