namespace Quantra.Client.Hosting.Tests;

/// <summary>Longest wait for an expected event. After that, the test fails instead of hanging.</summary>
internal static class TestTimeout
{
    public static readonly TimeSpan Value = TimeSpan.FromMinutes(10);
}
