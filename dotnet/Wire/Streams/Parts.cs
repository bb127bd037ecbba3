namespace Quantra.Client.Wire;

/// <summary>Work in several parts that belong together.</summary>
internal static class Parts
{
    /// <summary>Waits for all of them; the first that fails ends the others, and is what is told.</summary>
    /// <param name="stop">Ends each of them soon.</param>
    /// <param name="parts">They have begun.</param>
    public static async Task AllAsync(CancellationTokenSource stop, params IReadOnlyList<Task> parts)
    {
        for (List<Task> left = [.. parts]; left.Count > 0;)
        {
            var done = await Task.WhenAny(left).ConfigureAwait(false);
            left.Remove(done);
            if (done.IsCompletedSuccessfully)
                continue;
            await stop.CancelAsync().ConfigureAwait(false);
            await Task.WhenAll(parts).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            await done.ConfigureAwait(false);
        }
    }
}
