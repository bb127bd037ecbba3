namespace Quantra.Client.Wire;

/// <summary>Runs calls and records their outcome.</summary>
internal static class CallTelemetryExtensions
{
    public static async Task<T> TrackAsync<T>(this ICallTelemetry telemetry, Func<Task<T>> call)
    {
        string? reason = QuantraReason.Error; // for exceptions of the caller's own code
        try
        {
            var result = await call().ConfigureAwait(false);
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
                telemetry.Succeed();
            else
                telemetry.Fail(reason);
        }
    }
}
