using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Wire;

/// <summary>Runs the calls of a predictor on pool threads, and waits for them when the predictor is disposed. Thread-safe.</summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "token sources without a timer hold no resources")]
internal sealed class ActiveCalls
{
    private readonly object _gate = new();
    private readonly TaskCompletionSource _drained = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly CancellationTokenSource _closing = new();
    private readonly CancellationTokenSource _ending = new();
    private int _count;
    private bool _isClosed;

    /// <summary>Cancelled when disposal begins. Streams stop taking requests and end in order.</summary>
    public CancellationToken Closing => _closing.Token;

    /// <summary>Cancelled when all calls have ended or the grace time has passed. Connections that outlive a call end with it.</summary>
    public CancellationToken Ending => _ending.Token;

    /// <summary>Whether at most one call is running.</summary>
    public bool HasAtMostOne => Volatile.Read(ref _count) <= 1;

    /// <summary>Runs a call on a pool thread.</summary>
    /// <param name="owner">The predictor, named in the ObjectDisposedException.</param>
    /// <param name="call">The call. Its token is cancelled by the caller or at the end of the grace time.</param>
    /// <param name="cancellationToken">The caller's token.</param>
    /// <exception cref="ObjectDisposedException">The predictor is disposed.</exception>
    /// <exception cref="QuantraException">CANCELLED: the predictor was disposed and the grace time has passed.</exception>
    /// <exception cref="OperationCanceledException">The caller's token was cancelled.</exception>
    public Task<T> RunAsync<T>(object owner, Func<CancellationToken, Task<T>> call, CancellationToken cancellationToken) =>
        StartAsync(owner, token => Task.Run(() => call(token), token), cancellationToken);

    /// <summary>As <see cref="RunAsync"/>, but starts the call on the caller's thread.</summary>
    public async Task<T> StartAsync<T>(object owner, Func<CancellationToken, Task<T>> call, CancellationToken cancellationToken)
    {
        Enter(owner);
        try
        {
            using var linked = cancellationToken.CanBeCanceled ? CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _ending.Token) : null;
            return await call(linked?.Token ?? _ending.Token).ConfigureAwait(false);
        }
        catch (OperationCanceledException error) when (cancellationToken.IsCancellationRequested)
        {
            throw new OperationCanceledException("the call was cancelled", error, cancellationToken);
        }
        catch (Exception error) when (_ending.IsCancellationRequested && error is OperationCanceledException or ObjectDisposedException)
        {
            const string Message = "the predictor was disposed, and the call did not finish within the grace time";
            throw new QuantraError(QuantraStatus.Cancelled, QuantraReason.Cancelled, Message).ToException(error);
        }
        finally
        {
            Leave();
        }
    }

    /// <summary>Rejects new calls, waits for running ones, and cancels those that exceed the grace time.</summary>
    /// <returns>Whether this was the first call. Later calls only wait.</returns>
    public async Task<bool> CloseAsync(TimeSpan grace)
    {
        var isFirst = Close();
        await _closing.CancelAsync().ConfigureAwait(false);
        await WaitUntilDrainedAsync(grace).ConfigureAwait(false);
        await _ending.CancelAsync().ConfigureAwait(false);
        await WaitUntilDrainedAsync(grace).ConfigureAwait(false);
        return isFirst;
    }

    private async Task WaitUntilDrainedAsync(TimeSpan timeout) => await Task.WhenAny(_drained.Task, Task.Delay(timeout)).ConfigureAwait(false);

    private void Enter(object owner)
    {
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_isClosed, owner);
            _count++;
        }
    }

    private void Leave()
    {
        lock (_gate)
        {
            if (--_count == 0 && _isClosed)
                _drained.TrySetResult();
        }
    }

    private bool Close()
    {
        lock (_gate)
        {
            var isFirst = !_isClosed;
            _isClosed = true;
            if (_count == 0)
                _drained.TrySetResult();
            return isFirst;
        }
    }
}
