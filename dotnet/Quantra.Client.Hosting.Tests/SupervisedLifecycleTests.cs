using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Ledger and lifecycle of a real supervised server.</summary>
public sealed class SupervisedLifecycleTests(HostingFixture fixture, TwoVersions versions) : IClassFixture<TwoVersions>, IDisposable
{
    private static readonly string[] Gates = ["losses", "shadow", "replay"];

    private readonly string _folder = versions.Copy();

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_host_promotes_a_version_of_its_own_server_and_reads_its_ledger()
    {
        using var host = CreateHost();
        await host.StartAsync(Token);
        var lifecycle = host.Services.GetRequiredService<IModelLifecycle>();
        var comparison = await lifecycle.CompareAsync("mine", "mine@2", cancellationToken: Token);
        Assert.Equal(("mine@1", "mine@2"), (comparison.Champion, comparison.Challenger));
        Assert.True((await lifecycle.PromoteAsync("mine@2", "newer", Gates, Token)).IsPromoted);
        Assert.Equal(2, (await host.Services.GetRequiredService<IStockPredictor>().GetModelAsync("mine", Token)).Version);
        var ledger = host.Services.GetRequiredService<IForecastLedger>();
        var last = await ledger.WatchEventsAsync("mine", cancellationToken: Token).FirstAsync(one => one.Version == 2, Token);
        Assert.Equal(("champion", "promote: newer"), (last.Kind, last.Reason));

        var port = host.Services.GetRequiredService<QuantraServer>().Status.AdminPort;
        await using var stranger = new ModelAdminClient(new Uri($"http://127.0.0.1:{port}"), new() { Token = _ => default });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => stranger.Lifecycle.RollBackAsync("mine", "too narrow", cancellationToken: Token));
        Assert.Equal(QuantraReason.Unauthenticated, failure.Reason);
        await host.StopAsync(Token);
    }

    [Fact]
    public async Task Admin_calls_work_again_after_a_killed_server_has_restarted()
    {
        using var host = CreateHost();
        await host.StartAsync(Token);
        var (server, lifecycle) = (host.Services.GetRequiredService<QuantraServer>(), host.Services.GetRequiredService<IModelLifecycle>());
        Assert.True((await lifecycle.PromoteAsync("mine@2", "newer", Gates, Token)).IsPromoted);
        var before = server.Status;
        ProcessSignals.Kill(before.ProcessId!.Value);
        var after = await server.WatchAsync(Token).FirstAsync(one => one.State == QuantraServerState.Ready && one.ProcessId != before.ProcessId, Token);
        Assert.NotEqual(before.AdminPort, after.AdminPort);
        Assert.Equal(new RollbackResult(1, 2), await lifecycle.RollBackAsync("mine", "too narrow", cancellationToken: Token));
        var reloaded = await host.Services.GetRequiredService<ModelAdminClient>().ReloadAsync("mine", Token);
        Assert.Equal([1], reloaded.Models.Where(model => model.IsDefault).Select(model => model.Version));
        await host.StopAsync(Token);
    }

    [Fact]
    public void A_server_without_admin_calls_opens_no_client_for_them()
    {
        var failure = Assert.Throws<InvalidOperationException>(() => new QuantraServer(fixture.Options()).OpenAdminClient());
        Assert.Equal("the server does not accept admin calls; set AcceptsAdminCalls of its options", failure.Message);
    }

    public void Dispose() => Directory.Delete(_folder, recursive: true);

    /// <summary>Creates a host of a supervised server that accepts admin calls, and of its clients.</summary>
    private IHost CreateHost()
    {
        var builder = Host.CreateEmptyApplicationBuilder(null);
        builder.Services.AddQuantraServer(options =>
        {
            (options.Models, options.PythonEnvironment, options.Device) = (Path.Combine(_folder, "models"), fixture.Environment, "cpu");
            (options.Ledger, options.AcceptsAdminCalls) = (Path.Combine(_folder, "ledger.db"), true);
        });
        builder.Services.AddQuantraClient(options => options.Timeout = TimeSpan.FromMinutes(5));
        return builder.Build();
    }
}
