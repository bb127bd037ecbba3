namespace Quantra.Client.Hosting.Tests;

/// <summary>How long tests wait for what must come: beyond it they fail, instead of waiting without end.</summary>
internal static class Patience
{
    public static readonly TimeSpan Longest = TimeSpan.FromMinutes(1);
}
