namespace Quantra.Client.Tests;

/// <summary>Waits for finalizers.</summary>
internal static class GarbageCollection
{
    private const int MostRounds = 200;

    /// <summary>Collects garbage until a condition holds.</summary>
    public static async Task CollectUntilAsync(Func<Task<bool>> isGone)
    {
        for (var round = 0; !await isGone(); round++)
        {
            Assert.True(round < MostRounds, "it is still there");
            await Task.Yield(); // the releasing method may still be on the stack
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }
}
