namespace Quantra.Client.Wire;

/// <summary>Counts the calls of a predictor, so that its end can wait for theirs. Thread-safe.</summary>
internal sealed class CallsUnderWay
{
    private readonly object _gate = new();
    private readonly TaskCompletionSource _drained = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _count;
    private bool _isClosed;

    /// <summary>Counts a call until what is returned is disposed.</summary>
    /// <param name="owner">The predictor, named where it takes no more calls.</param>
    /// <exception cref="ObjectDisposedException">No more calls are taken.</exception>
    public IDisposable Enter(object owner)
    {
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_isClosed, owner);
            _count++;
        }

        return new Call(this);
    }

    /// <summary>Takes no more calls, and waits until the last has ended or the time is over.</summary>
    /// <param name="grace">How long to wait.</param>
    /// <returns>Whether this was the first time: later ones only wait.</returns>
    public async Task<bool> CloseAsync(TimeSpan grace)
    {
        var isFirst = Close();
        try
        {
            await _drained.Task.WaitAsync(grace).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            // Their time is over: what follows breaks them.
        }

        return isFirst;
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

    private void Leave()
    {
        lock (_gate)
        {
            if (--_count == 0 && _isClosed)
                _drained.TrySetResult();
        }
    }

    private sealed class Call(CallsUnderWay calls) : IDisposable
    {
        private int _left;

        public void Dispose()
        {
            if (Interlocked.Exchange(ref _left, 1) == 0)
                calls.Leave();
        }
    }
}
