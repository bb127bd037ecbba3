using Quantra.Client.Testing;

namespace Quantra.Client.Tests;

/// <summary>The ledger for users' tests.</summary>
public sealed class FakeForecastLedgerTests
{
    private static readonly QuantraException Down = new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "down").ToException();

    private static readonly DateOnly Monday = new(2024, 7, 1);

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public void A_record_has_one_symbols_values_and_the_scores_of_its_outcomes()
    {
        var forecast = new ForecastBuilder { Symbols = ["A", "B"], Horizons = [1, 5], Value = (symbol, days, level) => (symbol == "A" ? 0 : 1) + level }.Build();
        var record = new RecordedForecastBuilder { Forecast = forecast, Symbol = "B", Outcome = horizon => horizon == 1 ? 1.7 : null }.Build();
        Assert.Equal(("B", forecast.ForecastId, 1.9, 100), (record.Symbol, record.ForecastId, record.Value(5, 0.9), record.AnchorPrice));
        var outcome = record.Outcome(1)!;
        Assert.Equal((Monday, OutcomeStatus.Scored, true, null), (outcome.Session, outcome.Status, outcome.IsInside, record.Outcome(5)));
        Assert.Equal(0.7, outcome.Level!.Value, 9);
        Assert.Equal(((0.1 * 0.6) + (0.5 * 0.2) + (0.1 * 0.2)) / 3, outcome.Pinball!.Value, 9);
    }

    [Theory]
    [InlineData(-1, 0.1, false)]
    [InlineData(0.1, 0.1, true)]
    [InlineData(0.9, 0.9, true)]
    [InlineData(2, 0.9, false)]
    public void An_outcome_beyond_the_quantiles_has_the_level_of_the_outermost_one(double value, double level, bool isInside)
    {
        var forecast = new ForecastBuilder { Horizons = [1], Value = (_, _, quantile) => quantile }.Build();
        var outcome = new RecordedForecastBuilder { Forecast = forecast, Outcome = _ => value }.Build().Outcome(1)!;
        Assert.Equal((level, isInside), (outcome.Level, outcome.IsInside));
    }

    [Fact]
    public async Task A_query_chooses_forecasts()
    {
        var (old, other) = (Record("AAPL", Monday.AddDays(-7), "stock", 1), Record("IBM", Monday, "stock", 2));
        var baseline = Record("IBM", Monday.AddDays(1), "har", 1) with { Role = ForecastRole.Baseline };
        var ledger = new FakeForecastLedger(old, other);
        ledger.Add(baseline);
        await AssertListedAsync([old, other, baseline], new());
        await AssertListedAsync([old, other], new() { Model = "stock" });
        await AssertListedAsync([other], new() { Model = "stock@2" });
        await AssertListedAsync([other, baseline], new() { Symbol = "IBM" });
        await AssertListedAsync([other], new() { First = Monday, Last = Monday });
        await AssertListedAsync([baseline], new() { Roles = [ForecastRole.Baseline, ForecastRole.Client] });
        await AssertListedAsync([baseline], new() { Symbol = "IBM", Newest = 1 });
        Assert.Equal((7, "stock"), (ledger.Queries.Count, ledger.Queries[1].Model?.Text));
        Assert.Equal([other, baseline], await ledger.GetForecastsAsync(other.ForecastId, "IBM", Token));
        Assert.Empty(await ledger.GetForecastsAsync("unknown", cancellationToken: Token));

        async Task AssertListedAsync(RecordedForecast[] expected, ForecastQuery query) =>
            Assert.Equal(expected, await ledger.ListForecastsAsync(query, Token).ToListAsync(Token));
    }

    [Fact]
    public async Task Lamps_of_a_model_are_those_that_the_test_sets()
    {
        ModelHealth one = new("stock", 1, true, Lamp.Red, []), other = new("har", 1, false, Lamp.Green, []);
        var ledger = new FakeForecastLedger { Health = new([one, other], Monday) };
        Assert.Equal(new LedgerHealth([one, other], Monday), await ledger.GetHealthAsync(cancellationToken: Token));
        Assert.Equal([other], (await ledger.GetHealthAsync("har@1", Token)).Models);
        Assert.Empty((await ledger.GetHealthAsync("har@2", Token)).Models);
    }

    [Fact]
    public async Task A_watch_receives_past_events_and_then_each_new_one()
    {
        var ledger = new FakeForecastLedger();
        var first = ledger.AddEvent("champion", "stock", 1, "first");
        ledger.AddEvent("alarm", "har", 1);
        await using var watch = ledger.WatchEventsAsync("stock", cancellationToken: Token).GetAsyncEnumerator(Token);
        Assert.True(await watch.MoveNextAsync());
        Assert.Equal(first, watch.Current);
        var next = watch.MoveNextAsync();
        Assert.False(next.IsCompleted);
        var later = ledger.AddEvent("alarm", "stock", 1, "coverage", Monday);
        Assert.True(await next);
        Assert.Equal((later, 3), (watch.Current, later.Number));
        Assert.Equal([later], await ledger.WatchEventsAsync(after: 2, cancellationToken: Token).Take(1).ToListAsync(Token));
    }

    [Fact]
    public async Task A_watch_ends_when_it_is_cancelled()
    {
        using var source = new CancellationTokenSource();
        await using var watch = new FakeForecastLedger().WatchEventsAsync(cancellationToken: source.Token).GetAsyncEnumerator(Token);
        var next = watch.MoveNextAsync();
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(async () => await next);
    }

    [Fact]
    public async Task Every_call_waits_and_throws_as_the_test_sets()
    {
        var answer = new TaskCompletionSource();
        var ledger = new FakeForecastLedger { BeforeCall = cancelled => answer.Task.WaitAsync(cancelled) };
        Func<Task>[] calls =
        [
            () => ledger.GetForecastsAsync("id", cancellationToken: Token),
            () => ledger.ListForecastsAsync(new(), Token).ToListAsync(Token).AsTask(),
            () => ledger.GetHealthAsync(cancellationToken: Token),
            () => ledger.WatchEventsAsync(cancellationToken: Token).FirstAsync(Token).AsTask(),
        ];
        Task[] running = [.. calls.Select(call => call())];
        Assert.DoesNotContain(running, task => task.IsCompleted);
        ledger.AddEvent("alarm");
        answer.SetResult();
        await Task.WhenAll(running);
        ledger.Failure = Down;
        foreach (var call in calls)
            Assert.Same(Down, await Assert.ThrowsAsync<QuantraException>(call));
    }

    [Fact]
    public async Task Invalid_arguments_are_rejected()
    {
        var ledger = new FakeForecastLedger();
        Assert.Throws<ArgumentException>(() => new FakeForecastLedger([null!]));
        Assert.Throws<ArgumentNullException>(() => ledger.Add(null!));
        Assert.Throws<ArgumentNullException>(() => ledger.ListForecastsAsync(null!, Token));
        Assert.Throws<ArgumentOutOfRangeException>(() => ledger.WatchEventsAsync(after: -1, cancellationToken: Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => ledger.GetForecastsAsync(null!, cancellationToken: Token));
        Assert.Throws<ArgumentException>(() => new RecordedForecastBuilder { Symbol = "unknown" }.Build());
    }

    private static RecordedForecast Record(string symbol, DateOnly day, string model, int version) => new RecordedForecastBuilder
    {
        Forecast = new ForecastBuilder { Symbols = [symbol], AsOf = day, Model = model, Version = version }.Build() with { ForecastId = "same" },
    }.Build();
}
