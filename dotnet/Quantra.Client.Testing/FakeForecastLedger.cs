using System.Collections.Concurrent;
using System.Runtime.CompilerServices;

namespace Quantra.Client.Testing;

/// <summary>A ledger for tests. It has the forecasts, lamps and events that the test adds, and fails on demand.</summary>
/// <remarks>Thread-safe.</remarks>
/// <example>
/// <code>
/// var ledger = new FakeForecastLedger(new RecordedForecastBuilder { Outcome = horizon => horizon == 1 ? 0.01 : null }.Build());
/// await foreach (var past in ledger.ListForecastsAsync(new ForecastQuery { Symbol = "AAPL" }))
///     Console.WriteLine(past.Outcome(1));
/// ledger.AddEvent("alarm", "stock", version: 1, "coverage too few");
/// ledger.Failure = new QuantraError(QuantraStatus.FailedPrecondition, QuantraReason.NoLedger, "no ledger").ToException();
/// </code>
/// </example>
public sealed class FakeForecastLedger : IForecastLedger
{
    private readonly ConcurrentQueue<RecordedForecast> _forecasts;
    private readonly ConcurrentQueue<ForecastQuery> _queries = new();
    private readonly object _gate = new();
    private readonly List<LedgerEvent> _events = [];
    private TaskCompletionSource _added = CreateSignal();

    /// <summary>Creates a ledger with some forecasts.</summary>
    /// <param name="forecasts">The forecasts, oldest first.</param>
    public FakeForecastLedger(params RecordedForecast[] forecasts)
    {
        ArgumentNullException.ThrowIfNull(forecasts);
        if (Array.Exists(forecasts, forecast => forecast is null))
            throw new ArgumentException("a forecast is null", nameof(forecasts));
        _forecasts = new(forecasts);
    }

    /// <summary>Lamps of all models.</summary>
    /// <value>No models by default.</value>
    public LedgerHealth Health { get; set; } = new([], null);

    /// <summary>Runs before each call. To simulate a slow call, return a task that the test completes.</summary>
    public Func<CancellationToken, Task> BeforeCall { get; set; } = _ => Task.CompletedTask;

    /// <summary>Exception that every call throws; null = none.</summary>
    public Exception? Failure { get; set; }

    /// <summary>All queries of <see cref="ListForecastsAsync"/> so far, in order.</summary>
    public IReadOnlyList<ForecastQuery> Queries => [.. _queries];

    /// <summary>Records a forecast.</summary>
    /// <param name="forecast">The forecast, newer than the earlier ones.</param>
    public void Add(RecordedForecast forecast)
    {
        ArgumentNullException.ThrowIfNull(forecast);
        _forecasts.Enqueue(forecast);
    }

    /// <summary>Records an event, which those who watch receive.</summary>
    /// <param name="kind">For example "alarm".</param>
    /// <param name="model">Name of the model; "" = none.</param>
    /// <param name="version">Version of the model; 0 = none.</param>
    /// <param name="reason">The reason in words.</param>
    /// <param name="session">Session that the event is about; null = none.</param>
    /// <returns>The event, with the next number.</returns>
    public LedgerEvent AddEvent(string kind, string model = "", int version = 0, string reason = "", DateOnly? session = null)
    {
        ArgumentNullException.ThrowIfNull(kind);
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(reason);
        lock (_gate)
        {
            var number = _events.Count + 1;
            var added = new LedgerEvent(number, DateTimeOffset.UnixEpoch.AddDays(number), kind, model, version, session, reason, "{}");
            _events.Add(added);
            _added.SetResult();
            _added = CreateSignal();
            return added;
        }
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<RecordedForecast>> GetForecastsAsync(
        string forecastId,
        string? symbol = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(forecastId);
        await BeginAsync(cancellationToken).ConfigureAwait(false);
        return [.. _forecasts.Where(one => one.ForecastId == forecastId && (symbol is null || one.Symbol == symbol))];
    }

    /// <inheritdoc/>
    public IAsyncEnumerable<RecordedForecast> ListForecastsAsync(ForecastQuery query, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(query);
        _queries.Enqueue(query);
        return ListAsync(query, cancellationToken);
    }

    /// <inheritdoc/>
    public async Task<LedgerHealth> GetHealthAsync(ModelReference? model = null, CancellationToken cancellationToken = default)
    {
        await BeginAsync(cancellationToken).ConfigureAwait(false);
        return Health with { Models = [.. Health.Models.Where(one => IsOf(model, one.Model, one.Version))] };
    }

    /// <inheritdoc/>
    public IAsyncEnumerable<LedgerEvent> WatchEventsAsync(
        ModelReference? model = null,
        long after = 0,
        CancellationToken cancellationToken = default)
    {
        ArgumentOutOfRangeException.ThrowIfNegative(after);
        return WatchAsync(model, after, cancellationToken);
    }

    private static TaskCompletionSource CreateSignal() => new(TaskCreationOptions.RunContinuationsAsynchronously);

    private static bool IsOf(ModelReference? reference, string model, int version) =>
        reference is null || reference.Text == model || reference == ModelReference.To(model, version);

    private static bool IsChosen(RecordedForecast forecast, ForecastQuery query) =>
        IsOf(query.Model, forecast.Model, forecast.Version)
        && (query.Symbol is null || query.Symbol == forecast.Symbol)
        && (query.First is null || forecast.AsOf >= query.First)
        && (query.Last is null || forecast.AsOf <= query.Last)
        && (query.Roles.Count == 0 || query.Roles.Contains(forecast.Role));

    private async Task BeginAsync(CancellationToken cancellationToken)
    {
        cancellationToken.ThrowIfCancellationRequested();
        await BeforeCall(cancellationToken).ConfigureAwait(false);
        if (Failure is { } failure)
            throw failure;
    }

    private async IAsyncEnumerable<RecordedForecast> ListAsync(ForecastQuery query, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        await BeginAsync(cancellationToken).ConfigureAwait(false);
        RecordedForecast[] chosen = [.. _forecasts.Where(one => IsChosen(one, query))];
        foreach (var forecast in chosen.TakeLast(query.Newest ?? chosen.Length))
        {
            cancellationToken.ThrowIfCancellationRequested();
            yield return forecast;
        }
    }

    private async IAsyncEnumerable<LedgerEvent> WatchAsync(ModelReference? model, long after, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        await BeginAsync(cancellationToken).ConfigureAwait(false);
        while (true)
        {
            var (newer, added) = SelectEventsAfter(after);
            foreach (var one in newer)
            {
                after = one.Number;
                if (model is null || model.Text == one.Model)
                    yield return one;
            }

            await added.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>Returns the later events, and a task that completes with the next one.</summary>
    private (LedgerEvent[] Newer, Task Added) SelectEventsAfter(long number)
    {
        lock (_gate)
            return ([.. _events.Where(one => one.Number > number)], _added.Task);
    }
}
