using System.Diagnostics;
using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A real supervised server and its calls.</summary>
public sealed class SupervisedServerTests(HostingFixture fixture, SupervisedServer supervised) : IClassFixture<SupervisedServer>
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_call_waits_for_the_server_to_be_ready()
    {
        Assert.Equal(["AAPL"], (await supervised.Client.PredictAsync(fixture.Request, Token)).Symbols);
        var status = supervised.Server.Status;
        Assert.Equal(QuantraServerState.Ready, status.State);
        Assert.NotNull(status.ProcessId);
        Assert.Matches(@"^\d+\.\d+", status.Version);
        Assert.Null(status.Error);
    }

    [Fact]
    public async Task Other_programs_cannot_call_the_server()
    {
        await supervised.Server.WaitUntilReadyAsync(Token);
        var options = new QuantraClientOptions { Token = _ => default };
        await using var stranger = new QuantraClient(new Uri($"http://127.0.0.1:{supervised.Server.Status.Port}"), options);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => stranger.PredictAsync(fixture.Request, Token));
        Assert.Equal(QuantraReason.Unauthenticated, failure.Reason);
    }

    [Fact]
    public async Task No_call_fails_while_a_killed_server_restarts()
    {
        await supervised.Server.WaitUntilReadyAsync(Token);
        var before = supervised.Server.Status;
        using var end = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var asking = Enumerable.Range(0, 8).Select(_ => AskAsync(end.Token)).ToArray();
        await supervised.Client.PredictAsync(fixture.Request, Token);
        ProcessSignals.Kill(before.ProcessId!.Value);
        var seen = await UntilReadyAgainAsync(before);
        await supervised.Client.PredictAsync(fixture.Request, Token);
        await end.CancelAsync();
        Assert.All(await Task.WhenAll(asking), answered => Assert.True(answered > 0));
        Assert.Equal([QuantraServerState.Starting, QuantraServerState.Ready], seen.Select(status => status.State));
        Assert.All(seen, status => Assert.Equal(before.Restarts + 1, status.Restarts));
        Assert.NotEqual(before.ProcessId, supervised.Server.Status.ProcessId);
        Assert.NotEqual(before.Port, supervised.Server.Status.Port);
        if (!OperatingSystem.IsWindows())
            Assert.Contains($"the server of {fixture.Models} ended, exit code 137", seen[0].Error!.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task The_servers_log_keeps_its_levels()
    {
        await supervised.Server.WaitUntilReadyAsync(Token);
        const string Warned = "predictor.server.host: not served: small/aliases.json: alias 'canary' names version 9, which is missing";
        var line = await supervised.Log.WaitForLineAsync(line => line.Text.StartsWith(Warned, StringComparison.Ordinal), Token);
        Assert.Equal(("Quantra.Server", LogLevel.Warning), (line.Category, line.Level));
        Assert.Contains(supervised.Log.Lines, line =>
            line.Category == typeof(QuantraServer).FullName && line.Level == LogLevel.Information && line.Text.StartsWith("the server is ready on port", StringComparison.Ordinal));
    }

    [Fact]
    public async Task The_token_is_on_no_command_line_and_in_no_log()
    {
        Assert.SkipUnless(OperatingSystem.IsLinux(), "reads what Linux tells of processes");
        await supervised.Server.WaitUntilReadyAsync(Token);
        var variables = await File.ReadAllTextAsync($"/proc/{supervised.Server.Status.ProcessId}/environ", Token);
        var token = variables.Split('\0').Single(one => one.StartsWith("QUANTRA_TOKEN=", StringComparison.Ordinal)).Split('=')[1];
        Assert.Equal(64, token.Length);
        var command = await File.ReadAllTextAsync($"/proc/{supervised.Server.Status.ProcessId}/cmdline", Token);
        Assert.DoesNotContain(token, command, StringComparison.Ordinal);
        Assert.DoesNotContain(supervised.Log.Lines, line => line.Text.Contains(token, StringComparison.Ordinal));
    }

    [Fact]
    public async Task A_second_start_changes_nothing()
    {
        await supervised.Server.WaitUntilReadyAsync(Token);
        var before = supervised.Server.Status;
        await supervised.Server.StartAsync(Token);
        Assert.Same(before, supervised.Server.Status);
    }

    /// <summary>Makes one call after the other and counts the results.</summary>
    private async Task<int> AskAsync(CancellationToken end)
    {
        var answered = 0;
        for (; !end.IsCancellationRequested; answered++)
            await supervised.Client.PredictAsync(fixture.Request, Token);
        return answered;
    }

    private async Task<List<QuantraServerStatus>> UntilReadyAgainAsync(QuantraServerStatus before)
    {
        var seen = new List<QuantraServerStatus>();
        await foreach (var status in supervised.Server.WatchAsync(Token))
        {
            if (status != before)
                seen.Add(status);
            if (status.State == QuantraServerState.Ready && status != before)
                break;
        }

        return seen;
    }
}
