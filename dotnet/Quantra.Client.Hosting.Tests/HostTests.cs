using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;
using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Servers in a host, and their health.</summary>
public sealed class HostTests(HostingFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task Services_can_call_until_they_stop_regardless_of_their_order()
    {
        var builder = Host.CreateEmptyApplicationBuilder(null);
        builder.Services.AddSingleton(fixture.Request).AddSingleton<StartupCaller>().AddHostedService(services => services.GetRequiredService<StartupCaller>());
        builder.Services.AddQuantraServer(Set).AddHealthChecks().AddQuantra();
        using var host = builder.Build();
        await host.StartAsync(Token);
        var caller = host.Services.GetRequiredService<StartupCaller>();
        var health = host.Services.GetRequiredService<HealthCheckService>();
        var server = host.Services.GetRequiredService<QuantraServer>();
        Assert.Equal(["AAPL"], caller.AtStart!.Symbols);
        var report = (await health.CheckHealthAsync(Token)).Entries["quantra"];
        Assert.Equal((HealthStatus.Healthy, "serves small@1"), (report.Status, report.Description));
        var pid = server.Status.ProcessId!.Value;
        await host.StopAsync(Token);
        Assert.Equal(caller.AtStart.ForecastId, caller.AtEnd!.ForecastId);
        Assert.Equal(QuantraServerState.Stopped, server.Status.State);
        Assert.False(ProcessSignals.IsRunning(pid));
        report = (await health.CheckHealthAsync(Token)).Entries["quantra"];
        Assert.Equal((HealthStatus.Unhealthy, "UNAVAILABLE: the server is stopped; start it or its host"), (report.Status, report.Description));
    }

    [Fact]
    public async Task A_host_that_waits_for_its_server_fails_with_it()
    {
        var builder = Host.CreateEmptyApplicationBuilder(null);
        builder.Services.AddQuantraServer(options =>
        {
            Set(options);
            (options.PythonEnvironment, options.HostWaitsUntilReady) = (FakePython.Make(fixture, "echo 'no disk' >&2; exit 1"), true);
        });
        using var host = builder.Build();
        var failure = await Assert.ThrowsAsync<QuantraException>(() => host.StartAsync(Token));
        Assert.EndsWith("exit code 1: no disk", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_host_that_does_not_wait_is_degraded_and_then_reports_the_failure()
    {
        var builder = Host.CreateEmptyApplicationBuilder(null);
        builder.Services.AddQuantraServer("own", options =>
        {
            Set(options);
            options.PythonEnvironment = FakePython.Make(fixture, $"{FakePython.UntilTheEnd}; echo 'no disk' >&2; exit 1");
        });
        builder.Services.AddHealthChecks().AddQuantra("own", tags: ["ready"]);
        using var host = builder.Build();
        await host.StartAsync(Token);
        var health = host.Services.GetRequiredService<HealthCheckService>();
        var report = (await health.CheckHealthAsync(check => check.Tags.Contains("ready"), Token)).Entries["quantra:own"];
        Assert.Equal((HealthStatus.Degraded, "Starting, restarts: 0"), (report.Status, report.Description));
        await host.StopAsync(Token);
    }

    [Fact]
    public async Task A_failed_server_is_unhealthy_with_the_reason()
    {
        var services = new ServiceCollection().AddLogging().AddQuantraServer(options =>
        {
            Set(options);
            options.PythonEnvironment = FakePython.Make(fixture, "echo 'no disk' >&2; exit 1");
        });
        services.AddHealthChecks().AddQuantra();
        await using var provider = services.BuildServiceProvider();
        var server = provider.GetRequiredService<QuantraServer>();
        await server.StartAsync(Token);
        await Assert.ThrowsAsync<QuantraException>(() => server.WaitUntilReadyAsync(Token));
        var report = (await provider.GetRequiredService<HealthCheckService>().CheckHealthAsync(Token)).Entries["quantra"];
        Assert.Equal(HealthStatus.Unhealthy, report.Status);
        Assert.EndsWith("ended before it was ready, exit code 1: no disk", report.Description, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_client_without_a_server_reports_the_configured_failure_status()
    {
        var services = new ServiceCollection().AddLogging().AddQuantraClient("far", options =>
        {
            options.Address = new Uri("http://127.0.0.1:1");
            options.MaxAttempts = 1;
        });
        services.AddHealthChecks().AddQuantra("far", HealthStatus.Degraded);
        await using var provider = services.BuildServiceProvider();
        var report = (await provider.GetRequiredService<HealthCheckService>().CheckHealthAsync(Token)).Entries["quantra:far"];
        Assert.Equal(HealthStatus.Degraded, report.Status);
        Assert.StartsWith("UNAVAILABLE: no server answers at 127.0.0.1:1", report.Description, StringComparison.Ordinal);
    }

    private void Set(QuantraServerOptions options) =>
        (options.Models, options.PythonEnvironment, options.Device) = (fixture.Models, fixture.Environment, "cpu");
}
