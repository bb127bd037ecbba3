using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>
/// A session at the predictor. It keeps what forecasts depend on, so that another one can take its place where it is lost, and takes one
/// push after the other, so that what it keeps is what the predictor has.
/// </summary>
internal sealed class BarSession : IBarSession
{
    private static int _named;

    private readonly IStreamDoor _door;
    private readonly CallsUnderWay _calls;
    private readonly object _owner;
    private readonly SessionStreams _streams;
    private readonly SessionLink _link;
    private readonly object _gate = new();
    private Task _last = Task.CompletedTask;
    private SessionHistory? _history;
    private bool _isDisposed;
    private int _hasName;

    private BarSession(IStreamDoor door, SessionStreams streams, CallsUnderWay calls, object owner, SessionRequest request)
    {
        (_door, _streams, _calls, _owner) = (door, streams, calls, owner);
        (Model, Symbols) = (request.Model, [.. request.Bars.Symbols]);
        SessionId = request.SessionId.Length > 0
            ? request.SessionId
            : string.Create(CultureInfo.InvariantCulture, $"session-{Interlocked.Increment(ref _named)}");
        _link = new SessionLink(door, streams, SessionId);
    }

    /// <summary>Ends it at the predictor, where it was left without being disposed.</summary>
    ~BarSession() => Leave();

    /// <inheritdoc/>
    public string SessionId { get; }

    /// <inheritdoc/>
    public ModelReference Model { get; }

    /// <inheritdoc/>
    public IReadOnlyList<string> Symbols { get; }

    /// <inheritdoc/>
    public Forecast FirstForecast { get; private set; } = null!; // nobody has the session before it is open

    /// <inheritdoc/>
    public int Reopenings { get; private set; }

    /// <inheritdoc/>
    public QuantraError? LastLoss { get; private set; }

    /// <summary>Opens one.</summary>
    /// <param name="door">The way to the predictor.</param>
    /// <param name="streams">The call that its sessions share.</param>
    /// <param name="calls">Those of the predictor.</param>
    /// <param name="owner">The predictor, named where it takes no more calls.</param>
    /// <param name="request">Of the caller.</param>
    /// <param name="cancellationToken">Of the caller.</param>
    public static Task<IBarSession> OpenAsync(
        IStreamDoor door,
        SessionStreams streams,
        CallsUnderWay calls,
        object owner,
        SessionRequest request,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.Session(request);
        var deadline = Deadline.After(door.Settings.Timeout);
        return calls.RunAsync(
            owner,
            either => new BarSession(door, streams, calls, owner, request).BeginAsync(request, deadline, either),
            cancellationToken);
    }

    /// <inheritdoc/>
    public Task<PushResult> PushAsync(BarPanel bars, Covariates? covariates, bool flush, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(bars);
        covariates ??= Covariates.None;
        NullCheck.Push(bars, covariates);
        return InTurnAsync(new SessionPush(bars, covariates, flush), cancellationToken);
    }

    /// <inheritdoc/>
    public Task<PushResult> FlushAsync(CancellationToken cancellationToken) =>
        InTurnAsync(new SessionPush(null, Covariates.None, Flush: true), cancellationToken);

    /// <summary>Ends the session, after the pushes that are under way.</summary>
    /// <returns>A task that completes when it has ended.</returns>
    public async ValueTask DisposeAsync()
    {
        GC.SuppressFinalize(this);
        Task last;
        lock (_gate)
            (_isDisposed, last) = (true, _last);
        await last.ConfigureAwait(false);
        await _link.CloseAsync().ConfigureAwait(false);
        Leave();
    }

    /// <summary>Ends the session without waiting, and gives its name free.</summary>
    private void Leave()
    {
        _link.Abandon();
        if (Interlocked.Exchange(ref _hasName, 0) == 1)
            _streams.Free(SessionId);
    }

    private Task<IBarSession> BeginAsync(SessionRequest request, Deadline deadline, CancellationToken cancellationToken)
    {
        var watched = _door.Watch.BeginRequest(Model.Text);
        return watched.WatchAsync<IBarSession>(async () =>
        {
            _streams.Claim(SessionId);
            _hasName = 1;
            try
            {
                FirstForecast = await _link.OpenAsync(request, deadline, watched, cancellationToken).ConfigureAwait(false);
                _history = SessionHistory.Of(request, await BarsNeededAsync(FirstForecast, cancellationToken).ConfigureAwait(false));
                return this;
            }
            finally
            {
                if (_history is null)
                    Leave();
            }
        });
    }

    /// <summary>Pushes once all that was pushed before has its answer.</summary>
    private Task<PushResult> InTurnAsync(SessionPush push, CancellationToken cancellationToken)
    {
        var deadline = Deadline.After(_door.Settings.Timeout);
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_isDisposed, this);
            var before = _last;
            var pushed = _calls.RunAsync(_owner, either => PushAfterAsync(before, push, deadline, either), cancellationToken);
            _last = BothAsync(before, pushed);
            return pushed;
        }

        static async Task BothAsync(Task before, Task pushed)
        {
            await before.ConfigureAwait(false);
            await pushed.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    private async Task<PushResult> PushAfterAsync(Task before, SessionPush push, Deadline deadline, CancellationToken cancellationToken)
    {
        await before.WaitAsync(cancellationToken).ConfigureAwait(false);
        var watched = _door.Watch.BeginRequest(Model.Text);
        return await watched.WatchAsync(() => PushAsync(push, deadline, watched, cancellationToken)).ConfigureAwait(false);
    }

    /// <summary>Pushes; where there is too much to do, until the deadline.</summary>
    private async Task<PushResult> PushAsync(SessionPush push, Deadline deadline, IWatchedCall watched, CancellationToken cancellationToken)
    {
        for (var attempt = 1; ; attempt++)
        {
            TimeSpan pause;
            try
            {
                var result = await DeliverAsync(push, deadline, watched, cancellationToken).ConfigureAwait(false);
                _history = _history!.With(push, result.Forecast is not null);
                return result;
            }
            catch (QuantraException refusal) when (_link.IsOpen && _door.Settings.PauseAfter(attempt, refusal.Error, deadline) is { } wait)
            {
                pause = wait;
            }

            await Task.Delay(pause, cancellationToken).ConfigureAwait(false);
            watched.TryAgain();
        }
    }

    /// <summary>Pushes. A session that is lost is opened again, once.</summary>
    private async Task<PushResult> DeliverAsync(SessionPush push, Deadline deadline, IWatchedCall watched, CancellationToken cancellationToken)
    {
        if (_link.IsOpen)
        {
            try
            {
                return await _link.PushAsync(push, deadline, cancellationToken).ConfigureAwait(false);
            }
            catch (QuantraException) when (!_link.IsOpen && !deadline.IsOver && !_calls.Closing.IsCancellationRequested)
            {
                watched.TryAgain();
            }
        }

        await ReopenAsync(deadline, watched, cancellationToken).ConfigureAwait(false);
        return await _link.PushAsync(push, deadline, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Opens another session, and brings it to where this one was.</summary>
    /// <exception cref="QuantraException">It cannot be opened. RESUBSCRIBE: the model reads more bars now than are kept.</exception>
    private async Task ReopenAsync(Deadline deadline, IWatchedCall watched, CancellationToken cancellationToken)
    {
        var (history, loss, isThere) = (_history!, _link.Loss!, false);
        try
        {
            var forecast = await _link.OpenAsync(history.Opening(), deadline, watched, cancellationToken).ConfigureAwait(false);
            if (history.HasDropped)
                CheckKept(history.Count, await BarsNeededAsync(forecast, cancellationToken).ConfigureAwait(false));
            foreach (var push in history.Pushes())
                await _link.PushAsync(push, deadline, cancellationToken).ConfigureAwait(false);
            isThere = true;
        }
        finally
        {
            if (!isThere)
                _link.Abandon();
        }

        (LastLoss, Reopenings) = (loss, Reopenings + 1);
        _door.Watch.Reopened(SessionId, Model.Text, loss.Reason);
    }

    /// <summary>What the version reads that made a forecast, whatever the model's name means by now.</summary>
    private async Task<int> BarsNeededAsync(Forecast forecast, CancellationToken cancellationToken)
    {
        var version = ModelReference.To(forecast.Model, forecast.Version);
        return (await _door.GetModelAsync(version.Text, cancellationToken).ConfigureAwait(false)).BarsNeeded;
    }

    private static void CheckKept(int have, int need)
    {
        if (need <= have)
            return;
        var message = FormattableString.Invariant($"the session was lost, and its model reads {need} bars now, while {have} are kept; open another with its whole history");
        var facts = new Dictionary<string, string>
        {
            ["have"] = have.ToString(CultureInfo.InvariantCulture),
            ["need"] = need.ToString(CultureInfo.InvariantCulture),
        };
        throw new QuantraError(QuantraStatus.FailedPrecondition, QuantraReason.Resubscribe, message, facts).ToException();
    }
}
