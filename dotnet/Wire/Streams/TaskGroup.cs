namespace Quantra.Client.Wire;

/// <summary>Tasks that succeed or fail together.</summary>
internal static class TaskGroup
{
    /// <summary>Waits for all tasks. The first failure cancels the others and is thrown.</summary>
    public static async Task WhenAllAsync(CancellationTokenSource stop, params IReadOnlyList<Task> tasks)
    {
        for (List<Task> running = [.. tasks]; running.Count > 0;)
        {
            var done = await Task.WhenAny(running).ConfigureAwait(false);
            running.Remove(done);
            if (done.IsCompletedSuccessfully)
                continue;
            await stop.CancelAsync().ConfigureAwait(false);
            await Task.WhenAll(tasks).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            await done.ConfigureAwait(false);
        }
    }
}
