using System.Diagnostics.CodeAnalysis;
using System.Globalization;

namespace Quantra.Client;

/// <summary>A session of a predictor that has none: it keeps all bars and asks for a forecast of them at each push.</summary>
[SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "pushes may be under way, and it holds nothing")]
internal sealed class PredictorSession : IBarSession
{
    private static int _named;

    private readonly IStockPredictor _predictor;
    private readonly SemaphoreSlim _turn = new(1);
    private SessionHistory _history;
    private bool _isDisposed;

    private PredictorSession(IStockPredictor predictor, SessionRequest request, Forecast forecast)
    {
        (_predictor, Model, FirstForecast) = (predictor, request.Model, forecast);
        _history = SessionHistory.Of(request, int.MaxValue);
        SessionId = request.SessionId is { Length: > 0 } name
            ? name
            : string.Create(CultureInfo.InvariantCulture, $"session-{Interlocked.Increment(ref _named)}");
    }

    /// <inheritdoc/>
    public string SessionId { get; }

    /// <inheritdoc/>
    public ModelReference Model { get; }

    /// <inheritdoc/>
    public IReadOnlyList<string> Symbols => _history.Columns.Symbols;

    /// <inheritdoc/>
    public Forecast FirstForecast { get; }

    /// <summary>Opens one.</summary>
    public static async Task<IBarSession> OpenAsync(IStockPredictor predictor, SessionRequest request, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(request);
        var forecast = await predictor.PredictAsync(Asking(request), cancellationToken).ConfigureAwait(false);
        if (request.Bars.Sessions.Length < 2)
            throw QuantraError.BadFile(QuantraReason.MalformedRequest, "a session begins with a history of two sessions at least").ToException();
        return new PredictorSession(predictor, request, forecast);
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

    /// <summary>The forecast of all bars; null where nothing traded on the last day.</summary>
    private async Task<Forecast?> ForecastAsync(SessionHistory history, CancellationToken cancellationToken)
    {
        try
        {
            return await _predictor.PredictAsync(Asking(history.Whole()), cancellationToken).ConfigureAwait(false);
        }
        catch (QuantraException refusal) when (history.IsEmpty && refusal.Reason is QuantraReason.NoUsableSymbol or QuantraReason.TooFewBars)
        {
            return null;
        }
    }

    /// <summary>Refuses what cannot be put together with the bars that are there; the rest is the predictor's.</summary>
    private void Check(SessionPush push)
    {
        if (push.Bars is not { } bars)
        {
            if (_history.WaitsFor.Count == 0)
                throw QuantraError.BadFile(QuantraReason.MalformedRequest, "there is nothing to flush: no day waits for bars").ToException();
            return;
        }

        if (bars.Sessions.Length != 1)
            throw Refusal($"a push has the bars of one session, but these are of {bars.Sessions.Length}; push each day");
        if (bars.Symbols.FirstOrDefault(symbol => !_history.Columns.Has(symbol)) is { } strange)
            throw Refusal($"{strange} is not among the symbols of the session, {Listed.First(Symbols)}; open another one");
        if (!_history.Columns.Fit(bars, push.Covariates))
            throw Refusal($"a push must have the columns and covariates that the history of the session has");
        CheckDay(bars.Sessions.Span[0]);
    }

    private void CheckDay(DateOnly day)
    {
        if (day < _history.Session)
            throw Refusal($"the bars are of {day:yyyy-MM-dd}, but those of {_history.Session:yyyy-MM-dd} have come; push later ones");
        if (day > _history.Session && _history.WaitsFor.Count > 0)
            throw Refusal($"{_history.Session:yyyy-MM-dd} still waits for {Listed.First(_history.WaitsFor)}; push these, or flush the day");
    }

    private static QuantraException Refusal(FormattableString message) =>
        QuantraError.BadBars(message.ToString(CultureInfo.InvariantCulture)).ToException();

    private static PredictionRequest Asking(SessionRequest session) => new(session.Model, session.Bars)
    {
        Covariates = session.Covariates,
        AllowIncompleteLastBar = session.AllowIncompleteLastBar,
        GapPolicy = session.GapPolicy,
    };
}
