namespace Quantra.Client.Tests;

/// <summary>Servers that are killed, restarted or drained, and whose models change.</summary>
public sealed class DedicatedServerTests(PredictorFixture fixture, DedicatedServer server) : IClassFixture<DedicatedServer>
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    /// <summary>A client with enough attempts to wait for a starting server.</summary>
    private QuantraClient Patient => new(server.Address, new() { MaxAttempts = 1_000, Timeout = TimeSpan.FromSeconds(60) });

    [Fact]
    public async Task Streams_and_sessions_survive_a_server_restart()
    {
        var (panel, before, days) = SessionData.Split(fixture, 2);
        await using var client = Patient;
        await using var session = await client.OpenSessionAsync(new SessionRequest("small", before), Token);
        await session.PushAsync(panel.Between(days[0], days[0]).Select("IBM"), cancellationToken: Token);
        var restarting = Task.CompletedTask;
        var read = new List<PredictionResult>();
        await foreach (var result in client.PredictStreamAsync(new RequestFeed(new("small", before)) { Count = 200 }, Token))
        {
            read.Add(result);
            if (read.Count != 40)
                continue;
            await server.KillAsync();
            restarting = server.StartAsync();
        }

        await restarting;
        Assert.Equal(200, read.DistinctBy(result => result.RequestId).Count());
        Assert.All(read, result => Assert.Equal(read[0].GetForecast().ForecastId, result.GetForecast().ForecastId));
        await session.PushAsync(panel.Between(days[0], days[0]).Select("AAPL"), cancellationToken: Token);
        var pushed = await session.PushAsync(panel.Between(days[1], days[1]), cancellationToken: Token);
        Assert.Equal(await client.PredictAsync(new("small", panel), Token), pushed.GetForecast());
        Assert.Equal((1, QuantraReason.Unavailable), (session.Reopenings, session.LastLoss?.Reason));
    }

    [Fact]
    public async Task A_draining_server_answers_pending_requests_and_then_the_stream_is_UNAVAILABLE()
    {
        var request = new PredictionRequest("small", SessionData.Split(fixture, 1).Before);
        await using var client = new QuantraClient(server.Address, new() { MaxAttempts = 1 });
        var (read, feed, draining) = (0, new RequestFeed(request), Task.CompletedTask);
        var failure = await Assert.ThrowsAsync<QuantraException>(async () =>
        {
            await foreach (var result in client.PredictStreamAsync(feed, Token))
            {
                Assert.Null(result.Error);
                if (++read == 10)
                    draining = server.DrainAsync();
            }
        });
        await draining;
        await server.StartAsync();
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (failure.Code, failure.Reason));
        Assert.Contains("stopping", failure.Message, StringComparison.Ordinal);
        Assert.InRange(feed.Taken - read, 0, 32);
    }

    [Fact]
    public async Task Abandoned_and_disposed_sessions_end_at_the_server()
    {
        var request = new SessionRequest("small", SessionData.Split(fixture, 1).Before);
        await using var client = Patient;
        for (var place = 0; place < 50; place++)
            await LeaveAsync();
        await (await client.OpenSessionAsync(request, Token)).DisposeAsync();
        await GarbageCollection.CollectUntilAsync(async () => await server.MetricAsync("quantra_sessions", Token) == 0);

        async Task LeaveAsync() => await client.OpenSessionAsync(request, Token);
    }

    [Fact]
    public async Task Models_are_loaded_reloaded_and_unloaded()
    {
        using var seen = new TelemetryRecorder();
        await using var admin = new ModelAdminClient(server.AdminAddress);
        server.CopyModel("small", 2);
        Assert.Equal([1, 2], (await admin.LoadAsync("small@2", Token)).Models.Select(model => model.Version));
        Assert.Equal([1, 2], (await admin.ReloadAsync("small", Token)).Models.Select(model => model.Version));
        await using var client = Patient;
        Assert.Equal(1, (await client.GetModelAsync("small", Token)).Version);
        Assert.Equal([1], (await admin.UnloadAsync("small@2", Token)).Select(model => model.Version));
        Assert.Equal([1, 2], (await admin.LoadAsync(ModelReference.To("small", 2), Token)).Models.Select(model => model.Version));
        Assert.Contains(seen.Activities, activity => activity.OperationName == "quantra.v1.ModelAdminService/UnloadModel");
        Assert.Contains("ReloadModel small OK", seen.Calls);
    }

    [Fact]
    public async Task An_impossible_model_change_is_rejected_without_effect()
    {
        await using var admin = new ModelAdminClient(server.AdminAddress);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => admin.LoadAsync("small@9", Token));
        Assert.Equal((QuantraStatus.NotFound, QuantraReason.VersionNotFound), (failure.Code, failure.Reason));
        await Assert.ThrowsAsync<QuantraException>(() => admin.UnloadAsync("../../x", Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => admin.ReloadAsync(null!, Token));
        await using var elsewhere = new ModelAdminClient(server.Address);
        failure = await Assert.ThrowsAsync<QuantraException>(() => elsewhere.LoadAsync("small", Token));
        Assert.Equal(QuantraStatus.Unimplemented, failure.Code);
        await admin.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => admin.LoadAsync("small", Token));
    }
}
