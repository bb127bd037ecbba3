namespace Quantra.Client.Hosting.Tests;

/// <summary>How a trainer handles the output and exit of processes, with fake ones.</summary>
public sealed class TrainingProcessTests(HostingFixture fixture) : IAsyncDisposable
{
    private readonly ManualTimeProvider _time = new();
    private readonly LogRecorder _log = new();
    private readonly ProgressRecorder _seen = new();
    private QuantraTrainer? _trainer;

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private static StockTraining Training => new() { Bars = "bars.csv", Out = "models/mine/1" };

    public async ValueTask DisposeAsync()
    {
        if (_trainer is not null)
            await _trainer.DisposeAsync();
        _log.Dispose();
    }

    [Fact]
    public async Task The_command_has_the_properties_flags_and_then_the_arguments()
    {
        var training = Training with { Model = "tft", Calendar = "XNYS", Resume = true, Arguments = ["--epochs", "5"] };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => TrainAsync("echo \"$@\" >&2; exit 1", training));
        Assert.Equal(
            "-P -m trainers.cli train stock --json --parent-watch --bars=bars.csv --out=models/mine/1 --model=tft --calendar=XNYS --resume --epochs 5",
            failure.Metadata["stderr"]);
    }

    [Fact]
    public async Task Unknown_lines_are_ignored_and_missing_numbers_are_NaN()
    {
        const string Lines = """
            cat <<'END'
            Traceback of a library
            [1, 2]
            {"kind": "constellation", "stars": 7}
            {"kind": "window", "epoch": 0}
            {"kind": "window", "epoch": 1, "epochs": 4, "window": 2, "windows": null, "loss": null, "grad_norm": 1e300, "stepped": false}
            {"kind": "epoch", "epoch": 0, "epochs": 4, "phases": {}, "validation": null}
            {"kind": "checkpoint", "folder": "there", "problem": "the disk is full"}
            {"kind": "notice", "message": "memory ran out", "severity": 3}
            {"kind": "trained", "artifact": "models/mine/1", "card": {"skill": null}}
            END
            """;
        var result = await TrainAsync(Lines);
        Assert.Equal(new TrainingResult("models/mine/1", """{"skill": null}""", null, WasThere: false), result);
        Assert.Equal(
            [
                new TrainingStep(1, 4, 2, null, double.NaN, 1e300, double.NaN, IsSkipped: true),
                new TrainingEpoch(0, 4, double.NaN, double.NaN, double.NaN),
                new TrainingCheckpoint("there", "the disk is full"),
                new TrainingNotice("memory ran out", IsWarning: false),
            ],
            _seen.All);
        Assert.Null(((TrainingStep)_seen.All[0]).Share);
        Assert.Equal("epoch 2/4, window 3: loss NaN", _seen.All[0].ToString());
        Assert.Equal("checkpoint there was not written: the disk is full", _seen.All[2].ToString());
    }

    [Fact]
    public async Task An_already_finished_model_is_reported()
    {
        var result = await TrainAsync("""echo '{"kind": "finished", "artifact": "models/mine/1"}'""");
        Assert.Equal((true, null, "models/mine/1"), (result.WasThere, result.CardJson, result.ToString()));
    }

    [Fact]
    public async Task A_crashed_training_is_INTERNAL_with_its_last_lines()
    {
        var failure = await Assert.ThrowsAsync<QuantraException>(() => TrainAsync("echo first >&2; echo 'MemoryError: too much' >&2; exit 1"));
        Assert.Equal((QuantraReason.Internal, "first\nMemoryError: too much", "1"), (failure.Reason, failure.Metadata["stderr"], failure.Metadata["exit_code"]));
        Assert.EndsWith("exit code 1: MemoryError: too much", failure.Message, StringComparison.Ordinal);
        var killed = await Assert.ThrowsAsync<QuantraException>(() => TrainAsync("echo harmless >&2; kill -9 $$"));
        Assert.EndsWith("exit code 137", killed.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_model_of_a_process_that_then_fails_is_ignored()
    {
        const string Script = """echo '{"kind": "trained", "artifact": "models/mine/1", "card": {}}'; exit 3""";
        Assert.Equal(QuantraReason.Internal, (await Assert.ThrowsAsync<QuantraException>(() => TrainAsync(Script))).Reason);
    }

    [Fact]
    public async Task An_error_of_a_newer_trainer_keeps_its_reason()
    {
        const string Script = """echo '{"error": {"status": "STRANGE", "reason": "NEW", "message": "odd", "metadata": {"have": "1", "more": 2}}}'; exit 1""";
        var failure = await Assert.ThrowsAsync<QuantraException>(() => TrainAsync(Script));
        Assert.Equal((QuantraStatus.Unknown, "NEW", "odd", "1"), (failure.Code, failure.Reason, failure.Message, failure.Metadata["have"]));
    }

    [Fact]
    public async Task A_signal_from_outside_is_reported_as_a_stop()
    {
        const string Script = """echo '{"kind": "stopped", "message": "stopped by SIGINT after epoch 1", "signal": 2}'; exit 130""";
        var stopped = await Assert.ThrowsAsync<TrainingCanceledException>(() => TrainAsync(Script));
        Assert.Equal(("stopped by SIGINT after epoch 1; it wrote no checkpoint", null), (stopped.Message, stopped.Checkpoint));
    }

    [Fact]
    public async Task A_training_that_does_not_end_is_killed_with_its_children_after_the_grace_time()
    {
        using var cancelled = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var training = TrainAsync(
            $$"""echo '{"kind": "checkpoint", "folder": "there"}'; echo $$ >&2; sleep 1000 & echo $! >&2; {{FakePython.UntilTheEnd}}; echo closed >&2; wait""",
            cancelled: cancelled.Token);
        await _log.WaitForLineAsync(line => _log.Lines.Count == 2, Token);
        await cancelled.CancelAsync();
        await _log.WaitForLineAsync(line => line.Text == "closed", Token);
        await _time.FireTimerAsync(TimeSpan.FromSeconds(30), Token);
        var stopped = await Assert.ThrowsAsync<TrainingCanceledException>(() => training);
        Assert.Equal("the training was stopped; set Resume to continue from there", stopped.Message);
        await ProcessSignals.WaitForExitAsync(int.Parse(_log.Lines[0].Text), Token);
        await ProcessSignals.WaitForExitAsync(int.Parse(_log.Lines[1].Text), Token);
    }

    [Fact]
    public async Task Disposing_stops_running_trainings_and_rejects_new_ones()
    {
        var training = TrainAsync($"echo begun >&2; {FakePython.UntilTheEnd}");
        await _log.WaitForLineAsync(line => line.Text == "begun", Token);
        await _trainer!.DisposeAsync();
        Assert.True(training.IsCompleted);
        await Assert.ThrowsAsync<TrainingCanceledException>(() => training);
        await Assert.ThrowsAsync<ObjectDisposedException>(() => _trainer.TrainAsync(Training, null, Token));
    }

    [Fact]
    public async Task An_exception_of_the_progress_handler_ends_the_training()
    {
        var failing = new ProgressRecorder(_ => throw new InvalidTimeZoneException());
        var script = $$"""echo $$ >&2; echo '{"kind": "stage", "stage": "one"}'; {{FakePython.UntilTheEnd}}; sleep 1000""";
        await Assert.ThrowsAsync<InvalidTimeZoneException>(() => TrainAsync(script, progress: failing));
        await ProcessSignals.WaitForExitAsync(int.Parse(_log.Lines[0].Text), Token);
    }

    [Fact]
    public async Task A_cancelled_training_does_not_start()
    {
        var stopped = await Assert.ThrowsAsync<TrainingCanceledException>(() => TrainAsync("echo begun >&2", cancelled: new CancellationToken(canceled: true)));
        Assert.Equal("the training was cancelled before it started", stopped.Message);
        Assert.Empty(_log.Lines);
    }

    [Fact]
    public async Task An_invalid_training_is_rejected()
    {
        await using var trainer = new QuantraTrainer();
        await Assert.ThrowsAsync<ArgumentNullException>(() => trainer.TrainAsync(null!, null, Token));
        await Assert.ThrowsAsync<ArgumentException>(() => trainer.TrainAsync(Training with { Bars = " " }, null, Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => trainer.TrainAsync(Training with { Out = null! }, null, Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => trainer.TrainAsync(Training with { Arguments = null! }, null, Token));
        await Assert.ThrowsAsync<ArgumentException>(() => trainer.TrainAsync(Training with { Arguments = [null!] }, null, Token));
        var failure = await Assert.ThrowsAsync<ArgumentException>(() => trainer.TrainAsync(Training with { Arguments = ["--out=x"] }, null, Token));
        Assert.Contains("Arguments contains --out=x", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Without_a_Python_environment_the_message_has_the_command_that_creates_it()
    {
        await using var trainer = new QuantraTrainer(new QuantraTrainerOptions { PythonEnvironment = fixture.PathOf("nothing") });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => trainer.TrainAsync(Training, null, Token));
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.Contains("create it: ", failure.Message, StringComparison.Ordinal);
    }

    private Task<TrainingResult> TrainAsync(
        string script, StockTraining? training = null, ProgressRecorder? progress = null, CancellationToken? cancelled = null)
    {
        _trainer = new QuantraTrainer(new QuantraTrainerOptions { PythonEnvironment = FakePython.Make(fixture, script) }, _log, _time);
        return _trainer.TrainAsync(training ?? Training, progress ?? _seen, cancelled ?? Token);
    }
}
