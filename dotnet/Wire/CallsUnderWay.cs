using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Wire;

/// <summary>The calls of a predictor: none on its caller's thread, and its end waits for them. Thread-safe.</summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "without a timer the sources hold nothing")]
internal sealed class CallsUnderWay
{
    private readonly object _gate = new();
    private readonly TaskCompletionSource _drained = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly CancellationTokenSource _closing = new();
    private readonly CancellationTokenSource _ending = new();
    private int _count;
    private bool _isClosed;

    /// <summary>Cancelled once no more calls are taken: those that go on as long as they like end in order.</summary>
    public CancellationToken Closing => _closing.Token;

    /// <summary>Cancelled once the calls have ended, or their grace time: what outlasts calls ends with it.</summary>
    public CancellationToken Ending => _ending.Token;

    /// <summary>Whether there is one call at most.</summary>
    public bool IsAlone => Volatile.Read(ref _count) <= 1;

    /// <summary>Makes a call, all of it elsewhere than on the caller's thread.</summary>
    /// <param name="owner">The predictor, named where it takes no more calls.</param>
    /// <param name="call">The call; its token is cancelled by the caller, or once the grace time is over.</param>
    /// <param name="cancellationToken">Of the caller.</param>
    /// <exception cref="ObjectDisposedException">No more calls are taken.</exception>
    /// <exception cref="QuantraException">CANCELLED: the predictor was disposed meanwhile, and the grace time is over.</exception>
    /// <exception cref="OperationCanceledException">The caller's token was cancelled.</exception>
    public async Task<T> RunAsync<T>(object owner, Func<CancellationToken, Task<T>> call, CancellationToken cancellationToken)
    {
        Enter(owner);
        try
        {
            using var either = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _ending.Token);
            return await Task.Run(() => call(either.Token), either.Token).ConfigureAwait(false);
        }
        catch (OperationCanceledException error) when (cancellationToken.IsCancellationRequested)
        {
            throw new OperationCanceledException("the call was cancelled", error, cancellationToken);
        }
        catch (Exception error) when (_ending.IsCancellationRequested && error is OperationCanceledException or ObjectDisposedException)
        {
            const string Message = "the predictor was disposed, and the call was not done within its grace time";
            throw new QuantraError(QuantraStatus.Cancelled, QuantraReason.Cancelled, Message).ToException(error);
        }
        finally
        {
            Leave();
        }
    }

    /// <summary>Takes no more calls, waits until the last has ended, and cancels those that have not when the time is over.</summary>
    /// <param name="grace">How long to wait; as long again for those that were cancelled.</param>
    /// <returns>Whether this was the first time: later ones only wait.</returns>
    public async Task<bool> CloseAsync(TimeSpan grace)
    {
        var isFirst = Close();
        await _closing.CancelAsync().ConfigureAwait(false);
        await IsDrainedAsync(grace).ConfigureAwait(false);
        await _ending.CancelAsync().ConfigureAwait(false);
        await IsDrainedAsync(grace).ConfigureAwait(false);
        return isFirst;
    }

    private async Task<bool> IsDrainedAsync(TimeSpan wait) =>
        await Task.WhenAny(_drained.Task, Task.Delay(wait)).ConfigureAwait(false) == _drained.Task;

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
