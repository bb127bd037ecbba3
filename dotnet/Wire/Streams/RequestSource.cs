namespace Quantra.Client.Wire;

/// <summary>Enumerates the caller's requests. Abandons an enumeration that ignores its token.</summary>
internal sealed class RequestSource(IAsyncEnumerable<PredictionRequest> requests, CancellationToken cancellationToken) : IAsyncDisposable
{
    /// <summary>How long a cancelled enumeration may take to end.</summary>
    private static readonly TimeSpan CancellationGrace = TimeSpan.FromSeconds(0.25);

    private readonly IAsyncEnumerator<PredictionRequest> _each = requests.GetAsyncEnumerator(cancellationToken);
    private Task<bool>? _moving;

    public PredictionRequest Current => _each.Current;

    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<bool> MoveNextAsync()
    {
        var moving = _each.MoveNextAsync();
        if (moving.IsCompletedSuccessfully)
            return await moving.ConfigureAwait(false);
        _moving = moving.AsTask();
        return await _moving.WaitAsync(cancellationToken).ConfigureAwait(false);
    }

    public async ValueTask DisposeAsync()
    {
        if (_moving is { IsCompleted: false } moving)
        {
            await Task.WhenAny(moving, Task.Delay(CancellationGrace, CancellationToken.None)).ConfigureAwait(false);
            if (!moving.IsCompleted)
            {
                _ = DisposeAfterAsync(moving);
                return;
            }
        }

        await _each.DisposeAsync().ConfigureAwait(false);
    }

    private async Task DisposeAfterAsync(Task moving)
    {
        await moving.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        await _each.DisposeAsync().ConfigureAwait(false);
    }
}
