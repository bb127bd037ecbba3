namespace Quantra.Client.Tests;

/// <summary>What nobody holds any more.</summary>
internal static class GarbageCollection
{
    private const int MostRounds = 200;

    /// <summary>Collects it until something has become true of it.</summary>
    public static async Task CollectUntilAsync(Func<Task<bool>> isGone)
    {
        for (var round = 0; !await isGone(); round++)
        {
            Assert.True(round < MostRounds, "it is still there");
            await Task.Yield(); // whoever let go of it is still on the stack
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }
}
