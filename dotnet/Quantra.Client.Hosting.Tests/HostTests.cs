using System.Diagnostics;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;
using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A host with a server of its own, and a program that is killed.</summary>
public sealed class HostTests(Place place)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_host_starts_its_server_first_and_ends_it_last()
    {
        var builder = Host.CreateApplicationBuilder();
        builder.Services.AddHostedService<Farewell>();
        builder.Services.AddQuantraServer(options =>
        {
            (options.Models, options.PythonEnvironment, options.Device) = (place.Models, place.Environment, "cpu");
            options.HostWaitsUntilReady = true;
        });
        builder.Services.AddSingleton(place.Request);
        builder.Services.AddHealthChecks().AddQuantra();
        using var host = builder.Build();
        await host.StartAsync(Token);
        var server = host.Services.GetRequiredService<QuantraServer>();
        Assert.Equal(QuantraServerState.Ready, server.Status.State);
        var health = await host.Services.GetRequiredService<HealthCheckService>().CheckHealthAsync(Token);
        Assert.Equal(HealthStatus.Healthy, health.Status);
        var pid = server.Status.ProcessId!.Value;
        await host.StopAsync(Token);
        var farewell = host.Services.GetServices<IHostedService>().OfType<Farewell>().Single();
        Assert.Equal(["AAPL"], farewell.Last!.Symbols);
        Assert.Equal(QuantraServerState.Stopped, server.Status.State);
        Assert.False(Pids.IsRunning(pid));
    }

    [Fact]
    public async Task A_host_whose_server_fails_does_not_start_where_it_waits_for_it()
    {
        var builder = Host.CreateApplicationBuilder();
        builder.Services.AddQuantraServer(options =>
        {
            (options.Models, options.PythonEnvironment) = (place.Models, FakePython.Make(place, "echo no luck >&2; exit 1"));
            options.HostWaitsUntilReady = true;
        });
        builder.Services.AddHealthChecks().AddQuantra();
        using var host = builder.Build();
        var failure = await Assert.ThrowsAsync<QuantraException>(() => host.StartAsync(Token));
        Assert.Contains("no luck", failure.Message, StringComparison.Ordinal);
        var health = await host.Services.GetRequiredService<HealthCheckService>().CheckHealthAsync(Token);
        Assert.Equal(HealthStatus.Unhealthy, health.Status);
        Assert.Contains("no luck", health.Entries["quantra"].Description, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_program_that_is_killed_leaves_no_server()
    {
        Assert.SkipUnless(OperatingSystem.IsLinux(), "reads what Linux tells of processes");
        var program = Path.Combine(AppContext.BaseDirectory, "Quantra.Supervised.dll");
        string[] settings = [$"--Server:Models={place.Models}", $"--Server:PythonEnvironment={place.Environment}", "--Model=small", $"--Bars={place.PathOf("bars.csv")}"];
        using var parent = Process.Start(new ProcessStartInfo("dotnet", ["exec", program, .. settings]) { RedirectStandardOutput = true })!;
        var pid = 0;
        for (var forecast = ""; !forecast.StartsWith("AAPL: ", StringComparison.Ordinal);)
        {
            forecast = await parent.StandardOutput.ReadLineAsync(Token) ?? throw new InvalidOperationException("the program ended");
            if (forecast.StartsWith("server: Ready", StringComparison.Ordinal))
                pid = int.Parse(forecast.Split(' ')[^1]);
        }

        Assert.True(Pids.IsRunning(pid));
        parent.Kill();
        await Pids.HasEndedAsync(pid, Token);
    }
}
