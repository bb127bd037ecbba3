namespace Quantra.Client.Hosting.Servers;

/// <summary>What a server said when it was asked whether it is well.</summary>
/// <param name="IsAnswered">Whether it said anything.</param>
/// <param name="Trouble">What is wrong; null = it is well.</param>
internal readonly record struct ProbeAnswer(bool IsAnswered, string? Trouble)
{
    /// <summary>It is well.</summary>
    public static ProbeAnswer Well => new(IsAnswered: true, null);
}
