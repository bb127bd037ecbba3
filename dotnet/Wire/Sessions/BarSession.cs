using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>
/// A session at the predictor. It keeps the bars that forecasts depend on, and reopens with them if the session is lost. Pushes run one
/// at a time, so that these bars are always those that the predictor has.
/// </summary>
internal sealed class BarSession : IBarSession
{
    private static int _lastNumber;

    private readonly IStreamTransport _transport;
    private readonly ActiveCalls _calls;
    private readonly object _owner;
    private readonly SessionRegistry _registry;
    private readonly RemoteSession _remote;
    private readonly object _gate = new();
    private Task _lastPush = Task.CompletedTask;
    private SessionHistory? _history;
    private bool _isDisposed;
    private int _ownsName;

    private BarSession(IStreamTransport transport, SessionRegistry registry, ActiveCalls calls, object owner, SessionRequest request)
    {
        (_transport, _registry, _calls, _owner) = (transport, registry, calls, owner);
        (Model, Symbols) = (request.Model, [.. request.Bars.Symbols]);
        SessionId = request.SessionId.Length > 0
            ? request.SessionId
            : string.Create(CultureInfo.InvariantCulture, $"session-{Interlocked.Increment(ref _lastNumber)}");
        _remote = new RemoteSession(transport, registry, SessionId);
    }

    /// <summary>Closes a session that was not disposed.</summary>
    ~BarSession() => Release();

    /// <inheritdoc/>
    public string SessionId { get; }

    /// <inheritdoc/>
    public ModelReference Model { get; }

    /// <inheritdoc/>
    public IReadOnlyList<string> Symbols { get; }

    /// <inheritdoc/>
    public Forecast FirstForecast { get; private set; } = null!; // set before the caller gets the session

    /// <inheritdoc/>
    public int Reopenings { get; private set; }

    /// <inheritdoc/>
    public QuantraError? LastLoss { get; private set; }

    /// <summary>Opens a session.</summary>
    public static Task<IBarSession> OpenAsync(
        IStreamTransport transport,
        SessionRegistry registry,
        ActiveCalls calls,
        object owner,
        SessionRequest request,
        CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.Session(request);
        var deadline = Deadline.After(transport.Settings.Timeout);
        return calls.RunAsync(
            owner,
            linkedToken => new BarSession(transport, registry, calls, owner, request).StartAsync(request, deadline, linkedToken),
            cancellationToken);
    }

    /// <inheritdoc/>
    public Task<PushResult> PushAsync(BarPanel bars, Covariates? covariates, bool flush, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(bars);
        covariates ??= Covariates.None;
        NullCheck.Push(bars, covariates);
        return EnqueueAsync(new SessionPush(bars, covariates, flush), cancellationToken);
    }

    /// <inheritdoc/>
    public Task<PushResult> FlushAsync(CancellationToken cancellationToken) =>
        EnqueueAsync(new SessionPush(null, Covariates.None, Flush: true), cancellationToken);

    /// <summary>Closes the session after all pushes in progress.</summary>
    /// <returns>A task that completes when the session is closed.</returns>
    public async ValueTask DisposeAsync()
    {
        GC.SuppressFinalize(this);
        Task last;
        lock (_gate)
            (_isDisposed, last) = (true, _lastPush);
        await last.ConfigureAwait(false);
        await _remote.CloseAsync().ConfigureAwait(false);
        Release();
    }

    /// <summary>Closes the session without waiting and releases its name.</summary>
    private void Release()
    {
        _remote.Abandon();
        if (Interlocked.Exchange(ref _ownsName, 0) == 1)
            _registry.ReleaseName(SessionId);
    }

    private Task<IBarSession> StartAsync(SessionRequest request, Deadline deadline, CancellationToken cancellationToken)
    {
        var telemetry = _transport.Telemetry.BeginSessionRequest(Model.Text);
        return telemetry.TrackAsync<IBarSession>(async () =>
        {
            _registry.ReserveName(SessionId);
            _ownsName = 1;
            try
            {
                FirstForecast = await _remote.OpenAsync(request, deadline, telemetry, cancellationToken).ConfigureAwait(false);
                _history = SessionHistory.Of(request, await BarsNeededAsync(FirstForecast, cancellationToken).ConfigureAwait(false));
                return this;
            }
            finally
            {
                if (_history is null)
                    Release();
            }
        });
    }

    /// <summary>Pushes after all earlier pushes have completed.</summary>
    private Task<PushResult> EnqueueAsync(SessionPush push, CancellationToken cancellationToken)
    {
        var deadline = Deadline.After(_transport.Settings.Timeout);
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_isDisposed, this);
            var before = _lastPush;
            var pushed = _calls.RunAsync(_owner, linkedToken => PushAfterAsync(before, push, deadline, linkedToken), cancellationToken);
            _lastPush = WhenBothAsync(before, pushed);
            return pushed;
        }

        static async Task WhenBothAsync(Task before, Task pushed)
        {
            await before.ConfigureAwait(false);
            await pushed.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    private async Task<PushResult> PushAfterAsync(Task before, SessionPush push, Deadline deadline, CancellationToken cancellationToken)
    {
        await before.WaitAsync(cancellationToken).ConfigureAwait(false);
        var telemetry = _transport.Telemetry.BeginSessionRequest(Model.Text);
        return await telemetry.TrackAsync(() => PushAsync(push, deadline, telemetry, cancellationToken)).ConfigureAwait(false);
    }

    /// <summary>Pushes, and retries until the deadline while the predictor is overloaded.</summary>
    private async Task<PushResult> PushAsync(SessionPush push, Deadline deadline, ICallTelemetry telemetry, CancellationToken cancellationToken)
    {
        for (var attempt = 1; ; attempt++)
        {
            TimeSpan delay;
            try
            {
                var result = await PushOrReopenAsync(push, deadline, telemetry, cancellationToken).ConfigureAwait(false);
                _history = _history!.With(push, result.Forecast is not null);
                return result;
            }
            catch (QuantraException rejection) when (_remote.IsOpen && _transport.Settings.RetryDelay(attempt, rejection.Error, deadline) is { } wait)
            {
                delay = wait;
            }

            await Task.Delay(delay, cancellationToken).ConfigureAwait(false);
            telemetry.Retry();
        }
    }

    /// <summary>Pushes. Reopens a lost session once.</summary>
    private async Task<PushResult> PushOrReopenAsync(SessionPush push, Deadline deadline, ICallTelemetry telemetry, CancellationToken cancellationToken)
    {
        if (_remote.IsOpen)
        {
            try
            {
                return await _remote.PushAsync(push, deadline, cancellationToken).ConfigureAwait(false);
            }
            catch (QuantraException) when (!_remote.IsOpen && !deadline.HasPassed && !_calls.Closing.IsCancellationRequested)
            {
                telemetry.Retry();
            }
        }

        await ReopenAsync(deadline, telemetry, cancellationToken).ConfigureAwait(false);
        return await _remote.PushAsync(push, deadline, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Opens a new session and replays the history.</summary>
    /// <exception cref="QuantraException">The session cannot be opened. RESUBSCRIBE: the model now reads more bars than are kept.</exception>
    private async Task ReopenAsync(Deadline deadline, ICallTelemetry telemetry, CancellationToken cancellationToken)
    {
        var (history, loss, isReopened) = (_history!, _remote.Loss!, false);
        try
        {
            var forecast = await _remote.OpenAsync(history.Opening(), deadline, telemetry, cancellationToken).ConfigureAwait(false);
            if (history.HasDropped)
                CheckKept(history.Count, await BarsNeededAsync(forecast, cancellationToken).ConfigureAwait(false));
            foreach (var push in history.Pushes())
                await _remote.PushAsync(push, deadline, cancellationToken).ConfigureAwait(false);
            isReopened = true;
        }
        finally
        {
            if (!isReopened)
                _remote.Abandon();
        }

        (LastLoss, Reopenings) = (loss, Reopenings + 1);
        _transport.Telemetry.SessionReopened(SessionId, Model.Text, loss.Reason);
    }

    /// <summary>Returns how many bars the version that made the forecast reads, even if an alias has moved since.</summary>
    private async Task<int> BarsNeededAsync(Forecast forecast, CancellationToken cancellationToken)
    {
        var version = ModelReference.To(forecast.Model, forecast.Version);
        return (await _transport.GetModelAsync(version.Text, cancellationToken).ConfigureAwait(false)).BarsNeeded;
    }

    private static void CheckKept(int have, int need)
    {
        if (need <= have)
            return;
        var message = FormattableString.Invariant($"the session was lost, and its model now reads {need} bars, but only {have} are kept; open a new session with the whole history");
        var metadata = new Dictionary<string, string>
        {
            ["have"] = have.ToString(CultureInfo.InvariantCulture),
            ["need"] = need.ToString(CultureInfo.InvariantCulture),
        };
        throw new QuantraError(QuantraStatus.FailedPrecondition, QuantraReason.Resubscribe, message, metadata).ToException();
    }
}
