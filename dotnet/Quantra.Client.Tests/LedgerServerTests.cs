namespace Quantra.Client.Tests;

/// <summary>The ledger of a real server.</summary>
public sealed class LedgerServerTests(PredictorFixture fixture, LedgerServer server) : IClassFixture<LedgerServer>
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task Forecasts_have_the_outcomes_that_are_due()
    {
        await using var client = new QuantraClient(server.Address);
        var forecasts = await client.Ledger.ListForecastsAsync(new() { Model = "mine@1", Symbol = "IBM" }, Token).ToListAsync(Token);
        Assert.Equal(["10", "28"], forecasts.Select(forecast => forecast.ForecastId));
        var (old, recent) = (forecasts[0], forecasts[1]);
        Assert.Equal((ForecastRole.Champion, true, 100.0, -0.04), (old.Role, old.IsProspective, old.AnchorPrice, old.Value(5, 0.1)));
        Assert.All(old.Outcomes, outcome => Assert.Equal((OutcomeStatus.Scored, 0), (outcome.Status, outcome.Revision)));
        Assert.Equal(old.TargetSessions, old.Outcomes.Select(outcome => outcome.Session));
        Assert.Equal((OutcomeStatus.Scored, null), (recent.Outcome(1)?.Status, recent.Outcome(5)));
        Assert.Equal(recent.Outcome(1)!.IsInside, Math.Abs(recent.Outcome(1)!.Value!.Value) <= 0.02);
        Assert.Equal(recent, Assert.Single(await client.Ledger.GetForecastsAsync("28", "IBM", Token)));
        Assert.Empty(await client.Ledger.GetForecastsAsync("unknown", cancellationToken: Token));
    }

    [Fact]
    public async Task A_query_chooses_roles_sessions_and_the_newest()
    {
        await using var client = new QuantraClient(server.Address);
        var all = await IdsAsync(new() { Roles = [ForecastRole.Champion, ForecastRole.Baseline] });
        Assert.Equal(["10", "baseline", "28"], all.Select(forecast => forecast.ForecastId));
        Assert.Equal(["baseline"], (await IdsAsync(new() { Roles = [ForecastRole.Baseline] })).Select(forecast => forecast.ForecastId));
        var query = new ForecastQuery { Symbol = "IBM", First = all[0].AsOf, Last = all[1].AsOf, Newest = 1 };
        Assert.Equal(["baseline"], (await IdsAsync(query)).Select(forecast => forecast.ForecastId));

        ValueTask<List<RecordedForecast>> IdsAsync(ForecastQuery query) => client.Ledger.ListForecastsAsync(query, Token).ToListAsync(Token);
    }

    [Fact]
    public async Task A_served_forecast_is_in_the_ledger()
    {
        await using var client = new QuantraClient(server.Address, new() { MaxAttempts = 1_000 });
        var forecast = await client.PredictAsync(new("small", SessionData.Split(fixture, 1).Before), Token);
        await server.DrainAsync(); // waits until it is recorded
        await server.StartAsync();
        var recorded = await client.Ledger.GetForecastsAsync(forecast.ForecastId, forecast.Symbols[1], Token);
        var one = Assert.Single(recorded);
        Assert.Equal((ForecastRole.Client, forecast.AsOf, forecast.AnchorPrice!.Value.Span[1]), (one.Role, one.AsOf, one.AnchorPrice));
        Assert.Equal(forecast.Values.Slice(one.Values.Length, one.Values.Length).ToArray(), one.Values.ToArray());
        Assert.Empty(one.Outcomes);
    }

    [Fact]
    public async Task Lamps_of_a_model_are_read()
    {
        await using var client = new QuantraClient(server.Address);
        var health = await client.Ledger.GetHealthAsync("mine", Token);
        var model = Assert.Single(health.Models);
        Assert.Equal(("mine", 1, false, Lamp.Amber), (model.Model, model.Version, model.IsChampion, model.Lamp));
        var test = Assert.Single(model.Tests);
        Assert.Equal(new("coverage too few", 1, Lamp.Amber, health.LastSession!.Value, 1, 1, 0.8, test.StateJson), test);
        Assert.Empty((await client.Ledger.GetHealthAsync("mine@2", Token)).Models);
    }

    [Fact]
    public async Task A_watch_survives_a_restart_of_the_server_without_losing_or_repeating_an_event()
    {
        await using var client = new QuantraClient(server.Address, new() { Timeout = TimeSpan.FromMinutes(5) });
        var events = new List<LedgerEvent>();
        await foreach (var one in client.Ledger.WatchEventsAsync("mine", cancellationToken: Token))
        {
            events.Add(one);
            if (events.Count == 1)
            {
                await server.KillAsync();
                await server.AddEventAsync("while the server was down");
                await server.StartAsync();
            }
            else if (events.Count == 2)
            {
                await server.DrainAsync();
                await server.StartAsync();
                await server.AddEventAsync("while the client was watching");
            }
            else
            {
                break;
            }
        }

        Assert.Equal(["evening", "alarm", "alarm"], events.Select(one => one.Kind));
        Assert.Equal(["", "while the server was down", "while the client was watching"], events.Select(one => one.Reason));
        Assert.Equal(new DateOnly(2013, 3, 1), events[2].Session);
        Assert.Equal("{\"forecasts\": 3}", events[0].DetailJson);
    }

    [Fact]
    public async Task A_server_without_a_ledger_says_so()
    {
        await using var client = new QuantraClient(fixture.Address);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.Ledger.GetHealthAsync(cancellationToken: Token));
        Assert.Equal((QuantraStatus.FailedPrecondition, QuantraReason.NoLedger), (failure.Code, failure.Reason));
        failure = await Assert.ThrowsAsync<QuantraException>(() => client.Ledger.WatchEventsAsync(cancellationToken: Token).FirstAsync(Token).AsTask());
        Assert.Equal(QuantraReason.NoLedger, failure.Reason);
    }
}
