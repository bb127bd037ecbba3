namespace Quantra.Client.Tests;

/// <summary>A source that repeats one request with ids from 0, and records how it is enumerated.</summary>
internal sealed class RequestFeed(PredictionRequest request) : IAsyncEnumerable<PredictionRequest>
{
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _taken;

    /// <summary>Number of requests; endless by default.</summary>
    public int Count { get; init; } = int.MaxValue;

    /// <summary>Runs after the last request.</summary>
    public Func<CancellationToken, Task> Then { get; init; } = _ => Task.CompletedTask;

    /// <summary>Number of requests taken so far.</summary>
    public int Taken => Volatile.Read(ref _taken);

    /// <summary>Completes when the enumeration ends.</summary>
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
