namespace Quantra.Client.Tests;

/// <summary>A source of one request that blocks its thread on the second MoveNextAsync, until the result was read.</summary>
internal sealed class BlockingRequestFeed(PredictionRequest request) : IAsyncEnumerable<PredictionRequest>, IAsyncEnumerator<PredictionRequest>, IDisposable
{
    private readonly ManualResetEventSlim _read = new();
    private bool _isBegun;

    public PredictionRequest Current => request;

    /// <summary>Unblocks the source.</summary>
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
