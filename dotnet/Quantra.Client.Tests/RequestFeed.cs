namespace Quantra.Client.Tests;

/// <summary>The same request again and again, named by its numbers from 0; and what becomes of who takes them.</summary>
internal sealed class RequestFeed(PredictionRequest request) : IAsyncEnumerable<PredictionRequest>
{
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _taken;

    /// <summary>How many there are; without an end if nothing else is said.</summary>
    public int Count { get; init; } = int.MaxValue;

    /// <summary>What comes after them.</summary>
    public Func<CancellationToken, Task> Then { get; init; } = _ => Task.CompletedTask;

    /// <summary>How many were taken.</summary>
    public int Taken => Volatile.Read(ref _taken);

    /// <summary>Done once nobody takes any more.</summary>
    public Task Ended => _ended.Task;

    public async IAsyncEnumerator<PredictionRequest> GetAsyncEnumerator(CancellationToken cancellationToken = default)
    {
        try
        {
            for (var place = 0; place < Count; place++)
            {
                await Task.Yield();
                Interlocked.Increment(ref _taken);
                yield return request with { RequestId = $"{place}" };
            }

            await Then(cancellationToken);
        }
        finally
        {
            _ended.TrySetResult();
        }
    }
}
