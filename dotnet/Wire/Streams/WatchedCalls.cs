namespace Quantra.Client.Wire;

/// <summary>Tells whoever watches a call how it ended.</summary>
internal static class WatchedCalls
{
    /// <summary>Does the work of a call.</summary>
    public static async Task<T> WatchAsync<T>(this IWatchedCall watched, Func<Task<T>> work)
    {
        string? reason = QuantraReason.Error; // as where what the caller handed over throws
        try
        {
            var result = await work().ConfigureAwait(false);
            reason = null;
            return result;
        }
        catch (QuantraException failure)
        {
            reason = failure.Reason;
            throw;
        }
        catch (OperationCanceledException)
        {
            reason = QuantraReason.Cancelled;
            throw;
        }
        finally
        {
            if (reason is null)
                watched.Succeed();
            else
                watched.Fail(reason);
        }
    }
}
