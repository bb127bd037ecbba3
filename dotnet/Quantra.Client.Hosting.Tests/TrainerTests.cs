namespace Quantra.Client.Hosting.Tests;

/// <summary>Real trainings: their progress, their end, and what a stopped one leaves.</summary>
public sealed class TrainerTests(Place place) : IAsyncDisposable
{
    private readonly QuantraTrainer _trainer = new(new QuantraTrainerOptions { PythonEnvironment = place.Environment });

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    public ValueTask DisposeAsync() => _trainer.DisposeAsync();

    [Fact]
    public async Task A_training_tells_its_steps_and_gives_a_model_that_is_there_the_next_time()
    {
        var (seen, training) = (new Seen(), Training("trained/1"));
        var result = await _trainer.TrainAsync(training, seen, Token);
        Assert.Equal((training.Out, false), (result.Artifact, result.WasThere));
        Assert.Contains("\"AAPL\"", result.CardJson, StringComparison.Ordinal);
        Assert.NotEmpty(result.Skill!);
        Assert.True(File.Exists(Path.Combine(training.Out, "manifest.json")));
        Assert.IsType<TrainingStage>(seen.Told[0]);
        Assert.Contains(seen.Told.OfType<TrainingNotice>(), notice => notice.IsDoubt && notice.Text.Contains("windows", StringComparison.Ordinal));
        Assert.Equal([0, 1], seen.Told.OfType<TrainingEpoch>().Select(epoch => epoch.Epoch));
        Assert.All(seen.Told.OfType<TrainingEpoch>(), epoch => Assert.True(epoch is { Epochs: 2, Loss: > 0, Validation: > 0, Seconds: > 0 }));
        var steps = seen.Told.OfType<TrainingStep>().ToArray();
        Assert.Equal([0.25, 0.5, 0.75, 1], steps.Select(step => step.Share!.Value));
        Assert.All(steps, step => Assert.True(step is { Loss: > 0, GradientNorm: > 0, LearningRate: > 0, IsSkipped: false }));
        var again = await _trainer.TrainAsync(training with { Resume = true }, null, Token);
        Assert.Equal((training.Out, true), (again.Artifact, again.WasThere));
    }

    [Fact]
    public async Task A_training_that_is_cancelled_writes_a_checkpoint_from_which_it_goes_on()
    {
        var training = Training("stopped/1") with { Arguments = ["--epochs", "100000", "--patience", "100000"] };
        using var source = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var cancelling = new Told(progress => progress is TrainingStep ? source.CancelAsync() : Task.CompletedTask);
        var stopped = await Assert.ThrowsAsync<TrainingCanceledException>(() => _trainer.TrainAsync(training, cancelling, source.Token));
        Assert.Equal(source.Token, stopped.CancellationToken);
        Assert.True(Directory.Exists(stopped.Checkpoint), stopped.Message);
        Assert.EndsWith($"with Resume it goes on from {stopped.Checkpoint}", stopped.Message, StringComparison.Ordinal);
        Assert.False(Directory.Exists(training.Out));
        using var again = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var seen = new Seen();
        var ending = new Told(progress =>
        {
            seen.Report(progress);
            return progress is TrainingStep ? again.CancelAsync() : Task.CompletedTask;
        });
        await Assert.ThrowsAsync<TrainingCanceledException>(() => _trainer.TrainAsync(training with { Resume = true }, ending, again.Token));
        var first = seen.Told.OfType<TrainingStep>().First();
        Assert.True(first.Epoch + first.Window > 0, $"it began anew: {first}");
    }

    [Fact]
    public async Task A_training_that_fails_has_the_trainers_own_error()
    {
        var training = Training("failed/1") with { Bars = place.PathOf("nothing.csv") };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _trainer.TrainAsync(training, null, Token));
        Assert.Equal(QuantraReason.BarsInvalid, failure.Reason);
        Assert.Contains("nothing.csv", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_flag_that_there_is_not_is_told()
    {
        var training = Training("failed/2") with { Arguments = ["--no-such-flag"] };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _trainer.TrainAsync(training, null, Token));
        Assert.Equal(QuantraReason.InvalidInput, failure.Reason);
        Assert.Contains("--no-such-flag", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("--out=elsewhere")]
    [InlineData("--json")]
    [InlineData(null)]
    public async Task A_flag_that_has_a_property_is_refused_before_anything_starts(string? flag)
    {
        var training = Training("refused/1") with { Arguments = [flag!] };
        var failure = await Assert.ThrowsAsync<ArgumentException>(() => _trainer.TrainAsync(training, null, Token));
        Assert.Contains("leave it out", failure.Message, StringComparison.Ordinal);
        await Assert.ThrowsAsync<ArgumentException>(() => _trainer.TrainAsync(Training("x") with { Bars = " " }, null, Token));
    }

    [Fact]
    public async Task Cancelled_before_it_begins_it_leaves_nothing()
    {
        var training = Training("never/1");
        var stopped = await Assert.ThrowsAsync<TrainingCanceledException>(
            () => _trainer.TrainAsync(training, null, new CancellationToken(canceled: true)));
        Assert.Null(stopped.Checkpoint);
        Assert.False(Directory.Exists(training.Out));
    }

    [Fact]
    public async Task Disposing_the_trainer_stops_its_trainings_and_refuses_others()
    {
        var trainer = new QuantraTrainer(new QuantraTrainerOptions { PythonEnvironment = place.Environment });
        var begun = new TaskCompletionSource();
        var training = Training("disposed/1") with { Arguments = ["--epochs", "100000", "--patience", "100000"] };
        var going = trainer.TrainAsync(training, new Told(progress =>
        {
            if (progress is TrainingStep)
                begun.TrySetResult();
            return Task.CompletedTask;
        }), Token);
        await Task.WhenAny(begun.Task, going);
        await trainer.DisposeAsync();
        Assert.True(going.IsCompleted);
        Assert.NotNull((await Assert.ThrowsAsync<TrainingCanceledException>(() => going)).Checkpoint);
        await Assert.ThrowsAsync<ObjectDisposedException>(() => trainer.TrainAsync(training, null, Token));
        await trainer.DisposeAsync();
    }

    [Fact]
    public async Task A_training_that_does_not_stop_is_ended_by_force()
    {
        var script = $"echo '{{\"kind\": \"stage\", \"stage\": \"fake\"}}'; echo a word >&2; {FakePython.UntilTheEnd}; sleep 1000";
        var options = new QuantraTrainerOptions { PythonEnvironment = FakePython.Make(place, script), GraceTime = TimeSpan.FromMilliseconds(1) };
        await using var trainer = new QuantraTrainer(options);
        using var source = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var stopped = await Assert.ThrowsAsync<TrainingCanceledException>(
            () => trainer.TrainAsync(Training("forced/1"), new Told(_ => source.CancelAsync()), source.Token));
        Assert.Equal("the training was ended; it wrote no checkpoint", stopped.Message);
    }

    [Fact]
    public async Task A_training_that_dies_has_its_last_lines()
    {
        const string Script = "echo '{\"kind\": \"window\"}'; echo '{\"kind\": \"newer\", \"x\": 1}'; echo not JSON; echo a last word >&2; exit 7";
        await using var trainer = new QuantraTrainer(new QuantraTrainerOptions { PythonEnvironment = FakePython.Make(place, Script) });
        var seen = new Seen();
        var failure = await Assert.ThrowsAsync<QuantraException>(() => trainer.TrainAsync(Training("dead/1"), seen, Token));
        Assert.Equal("the training ended without a word, exit code 7: a last word", failure.Message);
        Assert.Empty(seen.Told);
    }

    private StockTraining Training(string folder) => new()
    {
        Bars = place.PathOf("history.csv"),
        Out = place.PathOf(folder),
        Model = "lstm",
        Calendar = "XNYS",
        Arguments = ["--epochs", "2"],
    };

    /// <summary>Keeps what is told, in its order.</summary>
    private sealed class Seen : IProgress<TrainingProgress>
    {
        public List<TrainingProgress> Told { get; } = [];

        public void Report(TrainingProgress value) => Told.Add(value);
    }

    /// <summary>Does something with what is told.</summary>
    private sealed class Told(Func<TrainingProgress, Task> then) : IProgress<TrainingProgress>
    {
        public void Report(TrainingProgress value) => _ = then(value);
    }
}
