namespace Quantra.Client.Tests;

/// <summary>One request, after which whoever asks for another is held, thread and all, until its result was read.</summary>
internal sealed class BlockingRequestFeed(PredictionRequest request) : IAsyncEnumerable<PredictionRequest>, IAsyncEnumerator<PredictionRequest>, IDisposable
{
    private readonly ManualResetEventSlim _read = new();
    private bool _isBegun;

    public PredictionRequest Current => request;

    /// <summary>The result was read.</summary>
    public void LetGo() => _read.Set();

    public IAsyncEnumerator<PredictionRequest> GetAsyncEnumerator(CancellationToken cancellationToken = default) => this;

    public ValueTask<bool> MoveNextAsync()
    {
        if (_isBegun)
            _read.Wait(TestContext.Current.CancellationToken);
        (var isFirst, _isBegun) = (!_isBegun, true);
        return new(isFirst);
    }

    public ValueTask DisposeAsync() => ValueTask.CompletedTask;

    public void Dispose() => _read.Dispose();
}
