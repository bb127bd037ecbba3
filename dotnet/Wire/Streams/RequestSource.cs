namespace Quantra.Client.Wire;

/// <summary>The caller's requests, taken one by one. One that does not heed its token is left behind.</summary>
internal sealed class RequestSource(IAsyncEnumerable<PredictionRequest> requests, CancellationToken cancellationToken) : IAsyncDisposable
{
    /// <summary>How long one that was cancelled may take to end.</summary>
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(0.25);

    private readonly IAsyncEnumerator<PredictionRequest> _each = requests.GetAsyncEnumerator(cancellationToken);
    private Task<bool>? _moving;

    /// <summary>The one that was taken last.</summary>
    public PredictionRequest Current => _each.Current;

    /// <summary>Takes the next one.</summary>
    /// <returns>Whether there is one.</returns>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<bool> MoveNextAsync()
    {
        var moving = _each.MoveNextAsync();
        if (moving.IsCompletedSuccessfully)
            return await moving.ConfigureAwait(false);
        _moving = moving.AsTask();
        return await _moving.WaitAsync(cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Ends the caller's enumeration.</summary>
    public async ValueTask DisposeAsync()
    {
        if (_moving is { IsCompleted: false } moving)
        {
            await Task.WhenAny(moving, Task.Delay(Patience, CancellationToken.None)).ConfigureAwait(false);
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
