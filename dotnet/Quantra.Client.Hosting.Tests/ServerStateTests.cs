namespace Quantra.Client.Hosting.Tests;

/// <summary>Servers that do not start, hang or crash too often, with a controlled clock.</summary>
public sealed class ServerStateTests(HostingFixture fixture) : IAsyncDisposable
{
    private const string Ready = """echo '{"ready": true, "port": 1, "pid": 7, "version": "0.1.0"}'""";

    private readonly ManualTimeProvider _time = new();
    private QuantraServer? _server;

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    public async ValueTask DisposeAsync()
    {
        if (_server is not null)
            await _server.DisposeAsync();
    }

    [Fact]
    public async Task A_server_that_was_not_started_is_stopped_and_its_calls_fail()
    {
        var server = Made(fixture.Options());
        Assert.Equal(QuantraServerState.Stopped, server.Status.State);
        await using var client = server.OpenClient();
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal((QuantraReason.Unavailable, "the server is stopped; start it or its host"), (failure.Reason, failure.Message));
        await server.StopAsync(Token);
    }

    [Fact]
    public async Task A_wrong_Python_folder_fails_with_the_command_that_creates_it()
    {
        var folder = fixture.PathOf("it's none");
        var failure = await FailureAsync(fixture.Options(options => options.PythonEnvironment = folder));
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.StartsWith($"{folder} is not a virtual environment with pyvenv.cfg and a python executable; create it: ", failure.Message, StringComparison.Ordinal);
        if (!OperatingSystem.IsWindows())
        {
            var quoted = folder.Replace("'", "'\\''", StringComparison.Ordinal);
            Assert.EndsWith(
                $"python3 -m venv '{quoted}' && '{quoted}/bin/python' -m pip install 'quantra[cli,calendars]'", failure.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task A_python_that_cannot_be_run_is_reported()
    {
        var folder = FakePython.Make(fixture, FakePython.UntilTheEnd);
        await File.WriteAllTextAsync(Path.Combine(folder, "bin", "python"), "\u0001", Token);
        var failure = await FailureAsync(fixture.Options(options => options.PythonEnvironment = folder));
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.Contains($"{folder}/bin/python cannot be run", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task An_environment_without_quantra_fails_with_the_command_that_installs_it()
    {
        var folder = FakePython.Make(fixture, "exec \"$REAL_PYTHON\" -S \"$@\"");
        var failure = await FailureAsync(fixture.Options(options =>
        {
            options.PythonEnvironment = folder;
            options.Environment["REAL_PYTHON"] = fixture.Interpreter;
            options.Environment["PYTHONPATH"] = "";
        }));
        Assert.Equal(QuantraReason.PackageMissing, failure.Reason);
        Assert.Equal(
            $"quantra is not installed in {folder}; install it: '{folder}/bin/python' -m pip install 'quantra[cli,calendars]'", failure.Message);
    }

    [Fact]
    public async Task A_server_that_exits_with_a_startup_error_is_not_restarted()
    {
        var models = fixture.PathOf("not yet");
        var server = Made(fixture.Options(options => options.Models = models));
        var failure = await FailureAsync(server);
        Assert.Contains("ended before it was ready, exit code 1: ", failure.Message, StringComparison.Ordinal);
        Assert.Contains("there is no such folder; train a model into", failure.Message, StringComparison.Ordinal);
        Assert.Equal((QuantraServerState.Failed, 0), (server.Status.State, server.Status.Restarts));
        await server.StartAsync(Token);
        Assert.Equal(QuantraServerState.Starting, server.Status.State);
        Assert.Null(server.Status.Error);
    }

    [Fact]
    public async Task A_server_can_be_started_again_right_after_its_failure()
    {
        var failures = 0;
        using var log = new LogRecorder(line =>
        {
            if (line.Text.EndsWith("not restarting", StringComparison.Ordinal) && ++failures == 1)
                _ = _server!.StartAsync(Token);
        });
        _server = new QuantraServer(Fake("exit 1"), log, _time);
        await using var watch = _server.WatchAsync(Token).GetAsyncEnumerator(Token);
        await NextAsync(watch);
        await _server.StartAsync(Token);
        foreach (var state in (QuantraServerState[])[QuantraServerState.Starting, QuantraServerState.Failed, QuantraServerState.Starting, QuantraServerState.Failed])
            Assert.Equal(state, (await NextAsync(watch)).State);
    }

    [Fact]
    public async Task A_server_that_crashes_too_often_fails_and_its_calls_show_its_last_lines()
    {
        var server = Made(Fake("for line in $(seq 60); do echo \"line $line\" >&2; done; kill -9 $$"));
        await using var client = server.OpenClient();
        await server.StartAsync(Token);
        var asked = client.ListModelsAsync(Token);
        await _time.FireTimerAsync(TimeSpan.FromSeconds(1), Token);
        await _time.FireTimerAsync(TimeSpan.FromSeconds(2), Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => asked);
        Assert.Equal(QuantraReason.Unavailable, failure.Reason);
        Assert.EndsWith("ended before it was ready, exit code 137", failure.Message, StringComparison.Ordinal);
        Assert.Equal(Enumerable.Range(11, 50).Select(line => $"line {line}"), failure.Metadata["stderr"].Split('\n'));
        Assert.Contains("line 60", failure.ToString(), StringComparison.Ordinal);
        Assert.Equal((QuantraServerState.Failed, 3), (server.Status.State, server.Status.Restarts));
        Assert.Contains("line 60", (await Assert.ThrowsAsync<QuantraException>(() => server.WaitUntilReadyAsync(Token))).ToString(), StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_server_that_never_becomes_ready_is_killed()
    {
        const string Script = "trap '' TERM; sleep 1000 & echo $! >&2; echo $$ >&2; echo all >&2; while true; do wait; done";
        var server = Made(Fake(Script, options => options.MaxRestarts = 0), out var log);
        await server.StartAsync(Token);
        await log.WaitForLineAsync(line => line.Text == "all", Token);
        await _time.FireTimerAsync(TimeSpan.FromMinutes(2), Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => server.WaitUntilReadyAsync(Token));
        Assert.EndsWith("was killed: it was not ready within 120 s", failure.Message, StringComparison.Ordinal);
        foreach (var pid in failure.Metadata["stderr"].Split('\n')[..2])
            await ProcessSignals.WaitForExitAsync(int.Parse(pid), Token);
    }

    [Fact]
    public async Task Only_the_ready_line_of_the_output_counts()
    {
        const string Garbage = """
            printf '\377\376 garbage \n[1]\n{}\n{"ready": "yes"}\n{"ready": true}\n{"ready": true, "port": 99999, "pid": 1, "version": ""}\n'
            printf '{"ready": true, "port": 1.5, "pid": 1, "version": ""}\n{"ready": false, "port": 2, "pid": 1, "version": ""}\n'
            head -c 200000 /dev/zero | tr '\0' x; echo
            head -c 200000 /dev/zero | tr '\0' y >&2
            """;
        var server = Made(Fake($"{Garbage}\n{Ready}\necho again; {FakePython.UntilTheEnd}"));
        await server.StartAsync(Token);
        await server.WaitUntilReadyAsync(Token);
        Assert.Equal((1, 7, "0.1.0"), (server.Status.Port, server.Status.ProcessId, server.Status.Version));
    }

    [Fact]
    public async Task A_hanging_server_is_degraded_then_killed_and_restarted()
    {
        Assert.SkipUnless(OperatingSystem.IsLinux(), "stops a process by a signal");
        var options = fixture.Options(changed => changed.ProbeTimeout = TimeSpan.FromSeconds(4));
        var server = Made(options);
        await server.StartAsync(Token);
        await server.WaitUntilReadyAsync(Token);
        await using var watch = server.WatchAsync(Token).GetAsyncEnumerator(Token);
        await NextAsync(watch);
        var pid = server.Status.ProcessId!.Value;
        await ProcessSignals.SignalAsync(pid, "STOP");
        await MissAsync(options);
        var degraded = await NextAsync(watch);
        Assert.Equal((QuantraServerState.Degraded, pid), (degraded.State, degraded.ProcessId));
        Assert.EndsWith("is unhealthy: no response to a health check within 4 s", degraded.Error!.Message, StringComparison.Ordinal);
        await ProcessSignals.SignalAsync(pid, "CONT");
        await _time.FireTimerAsync(options.ProbeInterval, Token);
        Assert.Equal(QuantraServerState.Ready, (await NextAsync(watch)).State);
        await ProcessSignals.SignalAsync(pid, "STOP");
        for (var missed = 0; missed < 3; missed++)
            await MissAsync(options);
        Assert.Equal(QuantraServerState.Degraded, (await NextAsync(watch)).State);
        var starting = await NextAsync(watch);
        Assert.Equal((QuantraServerState.Starting, 1), (starting.State, starting.Restarts));
        Assert.False(ProcessSignals.IsRunning(pid));
    }

    [Fact]
    public async Task Calls_that_wait_for_the_server_respect_their_deadline_and_cancellation()
    {
        var server = Made(Fake(FakePython.UntilTheEnd));
        await server.StartAsync(Token);
        await using var client = server.OpenClient(new QuantraClientOptions { Timeout = TimeSpan.FromSeconds(0.2) });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal(QuantraReason.DeadlineExceeded, failure.Reason);
        using var cancelled = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var asked = client.WithTimeout(TimeSpan.FromMinutes(1)).ListModelsAsync(cancelled.Token);
        var waiting = server.WaitUntilReadyAsync(cancelled.Token);
        await cancelled.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => asked);
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => waiting);
    }

    [Fact]
    public async Task Disposing_during_the_start_kills_the_process_at_once()
    {
        var server = Made(Fake($"echo $$ >&2; {FakePython.UntilTheEnd}; sleep 1000"), out var log);
        await server.StartAsync(Token);
        var pid = int.Parse((await log.WaitForLineAsync(line => line.Category == "Quantra.Server", Token)).Text);
        await server.DisposeAsync();
        Assert.False(ProcessSignals.IsRunning(pid));
        Assert.Equal(QuantraServerState.Stopped, server.Status.State);
        await Assert.ThrowsAsync<ObjectDisposedException>(() => server.StartAsync(Token));
        await server.DisposeAsync();
    }

    [Fact]
    public async Task Stopping_closes_standard_input_and_kills_the_process_tree_after_the_grace_time()
    {
        var server = Made(Fake($"echo $$ >&2; sleep 1000 & echo $! >&2; {Ready}; {FakePython.UntilTheEnd}; echo closed >&2; wait"), out var log);
        await server.StartAsync(Token);
        await server.WaitUntilReadyAsync(Token);
        var stopping = server.StopAsync(Token);
        await log.WaitForLineAsync(line => line.Text == "closed", Token);
        await _time.FireTimerAsync(TimeSpan.FromSeconds(10), Token);
        await stopping;
        var lines = log.Lines.Where(line => line.Category == "Quantra.Server").Select(line => line.Text).ToArray();
        await ProcessSignals.WaitForExitAsync(int.Parse(lines[0]), Token);
        await ProcessSignals.WaitForExitAsync(int.Parse(lines[1]), Token);
        Assert.Equal(QuantraServerState.Stopped, server.Status.State);
    }

    [Fact]
    public async Task A_cancelled_stop_does_not_wait()
    {
        var server = Made(Fake($"{Ready}; {FakePython.UntilTheEnd}; sleep 1000"));
        await server.StartAsync(Token);
        await server.WaitUntilReadyAsync(Token);
        await server.StopAsync(new CancellationToken(canceled: true));
        Assert.Equal(QuantraServerState.Stopped, server.Status.State);
    }

    [Fact]
    public async Task Stopping_cancels_a_pending_restart()
    {
        var server = Made(Fake("kill -9 $$"));
        await server.StartAsync(Token);
        await foreach (var status in server.WatchAsync(Token))
        {
            if (status.Restarts == 2)
                break;
        }

        await server.StopAsync(Token);
        Assert.Equal(QuantraServerState.Stopped, server.Status.State);
    }

    [Fact]
    public async Task An_unexpected_exception_fails_the_server_instead_of_hanging()
    {
        var server = new QuantraServer(Fake(FakePython.UntilTheEnd), null, new BrokenTimeProvider());
        await server.StartAsync(Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => server.WaitUntilReadyAsync(Token));
        Assert.Equal(QuantraReason.Internal, failure.Reason);
        Assert.Contains("a broken clock", failure.Message, StringComparison.Ordinal);
        await Assert.ThrowsAsync<NotSupportedException>(() => server.StopAsync(Token));
    }

    [Fact]
    public async Task An_exception_of_the_logger_is_thrown_after_the_process_has_ended()
    {
        using var log = new LogRecorder(line => throw new InvalidTimeZoneException(line.Text));
        var server = new QuantraServer(Fake("echo word >&2; exit 1"), log, _time);
        await server.StartAsync(Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => server.WaitUntilReadyAsync(Token).WaitAsync(TestTimeout.Value, Token));
        Assert.Equal(QuantraReason.Internal, failure.Reason);
        Assert.Contains("word", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task An_observer_sees_every_change_and_the_end()
    {
        var server = Made(Fake($"{Ready}; {FakePython.UntilTheEnd}"));
        var seen = new List<QuantraServerState>();
        await using var watch = server.WatchAsync(Token).GetAsyncEnumerator(Token);
        await NextAsync(watch);
        await server.StartAsync(Token);
        await server.WaitUntilReadyAsync(Token);
        await server.StopAsync(Token);
        await server.DisposeAsync();
        while (await watch.MoveNextAsync())
            seen.Add(watch.Current.State);
        Assert.Equal([QuantraServerState.Starting, QuantraServerState.Ready, QuantraServerState.Stopped], seen);
    }

    private static async Task<QuantraServerStatus> NextAsync(IAsyncEnumerator<QuantraServerStatus> watch)
    {
        Assert.True(await watch.MoveNextAsync());
        return watch.Current;
    }

    /// <summary>Lets a probe time out.</summary>
    private async Task MissAsync(QuantraServerOptions options)
    {
        await _time.FireTimerAsync(options.ProbeInterval, Token);
        await _time.FireTimerAsync(options.ProbeTimeout, Token);
    }

    private QuantraServerOptions Fake(string script, Action<QuantraServerOptions>? change = null) => fixture.Options(options =>
    {
        options.PythonEnvironment = FakePython.Make(fixture, script);
        change?.Invoke(options);
    });

    private QuantraServer Made(QuantraServerOptions options) => Made(options, out _);

    private QuantraServer Made(QuantraServerOptions options, out LogRecorder log) =>
        _server = new QuantraServer(options, log = new LogRecorder(), _time);

    private Task<QuantraException> FailureAsync(QuantraServerOptions options) => FailureAsync(Made(options));

    private static async Task<QuantraException> FailureAsync(QuantraServer server)
    {
        await server.StartAsync(Token);
        return await Assert.ThrowsAsync<QuantraException>(() => server.WaitUntilReadyAsync(Token));
    }
}
