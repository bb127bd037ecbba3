using System.Diagnostics.CodeAnalysis;
using System.Globalization;

namespace Quantra.Client;

/// <summary>Default implementation of sessions: keeps all bars and requests a forecast of them at each push.</summary>
[SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "pushes may still run, and it holds no resources")]
internal sealed class LocalBarSession : IBarSession
{
    private static int _lastNumber;

    private readonly IStockPredictor _predictor;
    private readonly SemaphoreSlim _turn = new(1);
    private SessionHistory _history;
    private bool _isDisposed;

    private LocalBarSession(IStockPredictor predictor, SessionRequest request, Forecast forecast)
    {
        (_predictor, Model, FirstForecast) = (predictor, request.Model, forecast);
        _history = SessionHistory.Of(request, int.MaxValue);
        SessionId = request.SessionId is { Length: > 0 } name
            ? name
            : string.Create(CultureInfo.InvariantCulture, $"session-{Interlocked.Increment(ref _lastNumber)}");
    }

    /// <inheritdoc/>
    public string SessionId { get; }

    /// <inheritdoc/>
    public ModelReference Model { get; }

    /// <inheritdoc/>
    public IReadOnlyList<string> Symbols => _history.Columns.Symbols;

    /// <inheritdoc/>
    public Forecast FirstForecast { get; }

    public static async Task<IBarSession> OpenAsync(IStockPredictor predictor, SessionRequest request, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        var forecast = await predictor.PredictAsync(CreateRequest(request), cancellationToken).ConfigureAwait(false);
        if (request.Bars.Sessions.Length < 2)
            throw QuantraError.BadFile(QuantraReason.MalformedRequest, "a session needs a history of at least two sessions").ToException();
        return new LocalBarSession(predictor, request, forecast);
    }

    /// <inheritdoc/>
    public Task<PushResult> PushAsync(BarPanel bars, Covariates? covariates, bool flush, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return PushAsync(new SessionPush(bars, covariates ?? Covariates.None, flush), cancellationToken);
    }

    /// <inheritdoc/>
    public Task<PushResult> FlushAsync(CancellationToken cancellationToken) =>
        PushAsync(new SessionPush(null, Covariates.None, Flush: true), cancellationToken);

    /// <inheritdoc/>
    public ValueTask DisposeAsync()
    {
        _isDisposed = true;
        return ValueTask.CompletedTask;
    }

    private async Task<PushResult> PushAsync(SessionPush push, CancellationToken cancellationToken)
    {
        ObjectDisposedException.ThrowIf(_isDisposed, this);
        await _turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        try
        {
            Check(push);
            var after = _history.With(push, hasForecast: false);
            var forecast = after.WaitsFor.Count > 0 ? null : await ForecastAsync(after, cancellationToken).ConfigureAwait(false);
            _history = after;
            return new PushResult(forecast, after.WaitsFor);
        }
        finally
        {
            _turn.Release();
        }
    }

    /// <summary>Forecasts all bars; null if nothing traded on the last day.</summary>
    private async Task<Forecast?> ForecastAsync(SessionHistory history, CancellationToken cancellationToken)
    {
        try
        {
            return await _predictor.PredictAsync(CreateRequest(history.Whole()), cancellationToken).ConfigureAwait(false);
        }
        catch (QuantraException refusal) when (history.IsEmpty && refusal.Reason is QuantraReason.NoUsableSymbol or QuantraReason.TooFewBars)
        {
            return null;
        }
    }

    /// <summary>Rejects a push that does not fit the kept bars. The predictor checks everything else.</summary>
    private void Check(SessionPush push)
    {
        if (push.Bars is not { } bars)
        {
            if (_history.WaitsFor.Count == 0)
                throw QuantraError.BadFile(QuantraReason.MalformedRequest, "nothing to flush: no day is waiting for bars").ToException();
            return;
        }

        if (bars.Sessions.Length != 1)
            throw CreateRejection($"a push must have one session, but these bars have {bars.Sessions.Length}; push each day separately");
        if (bars.Symbols.FirstOrDefault(symbol => !_history.Columns.Has(symbol)) is { } unknown)
            throw CreateRejection($"{unknown} is not a symbol of the session, which has {MessageFormat.First(Symbols)}; open another session");
        if (!_history.Columns.Fit(bars, push.Covariates))
            throw CreateRejection($"a push must have the same columns and covariates as the history of the session");
        CheckDay(bars.Sessions.Span[0]);
    }

    private void CheckDay(DateOnly day)
    {
        if (day < _history.Session)
            throw CreateRejection($"the bars are of {day:yyyy-MM-dd}, but the session has reached {_history.Session:yyyy-MM-dd}; push later ones");
        if (day > _history.Session && _history.WaitsFor.Count > 0)
            throw CreateRejection($"{_history.Session:yyyy-MM-dd} is still waiting for {MessageFormat.First(_history.WaitsFor)}; push these bars, or flush the day");
    }

    private static QuantraException CreateRejection(FormattableString message) =>
        QuantraError.BadBars(message.ToString(CultureInfo.InvariantCulture)).ToException();

    private static PredictionRequest CreateRequest(SessionRequest session) => new(session.Model, session.Bars)
    {
        Covariates = session.Covariates,
        AllowIncompleteLastBar = session.AllowIncompleteLastBar,
        AcceptSuspectBars = session.AcceptSuspectBars,
        GapPolicy = session.GapPolicy,
    };
}
