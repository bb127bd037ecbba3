namespace Quantra.Client.Tests;

/// <summary>Versions compared, promoted and rolled back on a real server.</summary>
public sealed class LifecycleServerTests : IAsyncLifetime
{
    /// <summary>Versions 1, the champion, and 2 of the model mine, and a ledger with bars.</summary>
    private const string SetupScript = """
        import sys
        from pathlib import Path

        folder = Path(sys.argv[1])
        sys.path.insert(0, sys.argv[2])
        from daily_runs import HAR, LEARNT, daily_bars, save_daily_model
        from predictor.ledger import Ledger

        for version, until in ((1, LEARNT), (2, 20101231)):
            save_daily_model(folder / "models" / "mine", version, HAR, until)
        with Ledger.open(folder / "ledger.db", create=True) as ledger:
            ledger.add_bars(daily_bars(20111230))
        """;

    /// <summary>The gates that fail without recorded forecasts.</summary>
    private static readonly string[] Evidence = ["losses", "shadow", "replay"];

    private readonly string _folder = Directory.CreateTempSubdirectory("quantra-lifecycle-").FullName;
    private PythonServer? _server;

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private Uri AdminAddress => new($"http://127.0.0.1:{_server!.AdminPort}");

    public async ValueTask InitializeAsync()
    {
        await PythonServer.RunAsync("-c", SetupScript, _folder, Path.Combine(PredictorFixture.Repository(), "tests"));
        _server = await PythonServer.StartQuantraAsync(
            Path.Combine(_folder, "models"), "--admin-listen", "127.0.0.1:0", "--ledger", Path.Combine(_folder, "ledger.db"));
    }

    [Fact]
    public async Task A_version_is_compared_promoted_and_rolled_back_while_it_is_served()
    {
        await using var client = new QuantraClient(_server!.Address);
        await using var admin = new ModelAdminClient(AdminAddress, new() { Timeout = TimeSpan.FromMinutes(5) });
        var comparison = await admin.Lifecycle.CompareAsync("mine", "mine@2", cancellationToken: Token);
        Assert.Equal(("mine@1", "mine@2"), (comparison.Champion, comparison.Challenger));
        Assert.Equal(["AAPL", "IBM", "MSFT"], comparison.Symbols);
        Assert.True(comparison.FirstSession > new DateOnly(2010, 12, 31) && comparison.LastSession < new DateOnly(2012, 1, 1) && comparison.Days > 100);
        Assert.True(comparison.Lower <= comparison.Improvement && comparison.Improvement <= comparison.Upper);
        var later = await admin.Lifecycle.CompareAsync("mine", "mine@2", new(2011, 12, 1), Token);
        Assert.Equal((new DateOnly(2011, 12, 1), null), (later.FirstSession, later.Lower));

        var refused = await admin.Lifecycle.PromoteAsync("mine@2", "newer", cancellationToken: Token);
        Assert.Equal((false, 1), (refused.IsPromoted, refused.Champion));
        Assert.Contains(refused.Gates, gate => gate is { Name: "replay", IsPassed: false, IsOverridden: false });

        var promoted = await admin.Lifecycle.PromoteAsync("mine@2", "newer", Evidence, Token);
        Assert.Equal((true, 2), (promoted.IsPromoted, promoted.Champion));
        Assert.Contains(promoted.Gates, gate => gate is { Name: "replay", IsPassed: false, IsOverridden: true });
        Assert.Equal(2, (await client.GetModelAsync("mine", Token)).Version);

        Assert.Equal(new RollbackResult(1, 2), await admin.Lifecycle.RollBackAsync("mine", "too narrow", 2, Token));
        Assert.Equal(1, (await client.GetModelAsync("mine", Token)).Version);
        var again = await Assert.ThrowsAsync<QuantraException>(() => admin.Lifecycle.RollBackAsync("mine", "too narrow", 2, Token));
        Assert.Equal(QuantraReason.ConfigurationInvalid, again.Reason);
        var events = await client.Ledger.WatchEventsAsync("mine", cancellationToken: Token).Take(3).ToListAsync(Token);
        Assert.Equal([("champion", 1), ("champion", 2), ("champion", 1)], events.Select(one => (one.Kind, one.Version)));
    }

    public async ValueTask DisposeAsync()
    {
        if (_server is not null)
            await _server.DisposeAsync();
        Directory.Delete(_folder, recursive: true);
    }
}
