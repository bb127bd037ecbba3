namespace Quantra.Client.Hosting.Tests;

/// <summary>Real trainings.</summary>
public sealed class TrainerTests(HostingFixture fixture) : IAsyncLifetime
{
    private readonly QuantraTrainer _trainer = new(new QuantraTrainerOptions { PythonEnvironment = fixture.Environment });

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    public ValueTask InitializeAsync() => ValueTask.CompletedTask;

    public ValueTask DisposeAsync() => _trainer.DisposeAsync();

    [Fact]
    public async Task A_training_reports_every_step_and_returns_a_model()
    {
        var seen = new ProgressRecorder();
        var result = await _trainer.TrainAsync(Training("trained/1", "2"), seen, Token);
        Assert.Equal(fixture.PathOf("trained/1"), result.Artifact);
        Assert.True(File.Exists(Path.Combine(result.Artifact, "manifest.json")));
        Assert.Contains("\"calibration\"", result.CardJson, StringComparison.Ordinal);
        Assert.StartsWith("No skill shown: ", result.Skill, StringComparison.Ordinal);
        Assert.False(result.WasThere);
        var stages = seen.All.OfType<TrainingStage>().Select(stage => stage.Text).ToArray();
        Assert.Equal("computing features", stages[0]);
        Assert.Equal("recording the golden instance, and saving", stages[^1]);
        Assert.Contains(seen.All.OfType<TrainingNotice>(), notice => notice.IsWarning);
        var steps = seen.All.OfType<TrainingStep>().ToArray();
        Assert.Equal([(0, 0), (0, 1), (1, 0), (1, 1)], steps.Select(step => (step.Epoch, step.Window)));
        Assert.Equal([0.25, 0.5, 0.75, 1.0], steps.Select(step => step.Share!.Value));
        Assert.All(steps, step => Assert.True(step is { Loss: > 0, GradientNorm: > 0, LearningRate: > 0, IsSkipped: false, Epochs: 2 }));
        var epochs = seen.All.OfType<TrainingEpoch>().ToArray();
        Assert.Equal([0, 1], epochs.Select(epoch => epoch.Epoch));
        Assert.All(epochs, epoch => Assert.True(epoch is { Loss: > 0, Validation: > 0, Seconds: > 0, Epochs: 2 }));
        Assert.All(seen.All.OfType<TrainingCheckpoint>(), checkpoint => Assert.Null(checkpoint.Problem));
    }

    [Fact]
    public async Task A_cancelled_training_names_its_checkpoint()
    {
        using var cancelled = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var seen = new ProgressRecorder(text =>
        {
            if (text is TrainingStep)
                cancelled.Cancel();
        });
        var stopped = await Assert.ThrowsAsync<TrainingCanceledException>(() => _trainer.TrainAsync(Training("stopped/1", "100000"), seen, cancelled.Token));
        Assert.Equal(cancelled.Token, stopped.CancellationToken);
        Assert.True(Directory.Exists(stopped.Checkpoint), stopped.Message);
        Assert.StartsWith("stopped by SIGTERM after ", stopped.Message, StringComparison.Ordinal);
        Assert.EndsWith($"; set Resume to continue from {stopped.Checkpoint}", stopped.Message, StringComparison.Ordinal);
        Assert.False(Directory.Exists(fixture.PathOf("stopped/1")));
        await GoesOnAsync(Training("stopped/1", "100000") with { Resume = true });
    }

    [Fact]
    public async Task A_failed_training_throws_its_error()
    {
        var training = Training("failed/1", "2") with { Bars = fixture.PathOf("nothing.csv") };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _trainer.TrainAsync(training, null, Token));
        Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.BarsInvalid), (failure.Code, failure.Reason));
        Assert.Equal($"there is no file {fixture.PathOf("nothing.csv")}", failure.Message);
    }

    /// <summary>Waits for a step after the first.</summary>
    private async Task GoesOnAsync(StockTraining training)
    {
        using var cancelled = CancellationTokenSource.CreateLinkedTokenSource(Token);
        var seen = new ProgressRecorder(text =>
        {
            if (text is TrainingStep)
                cancelled.Cancel();
        });
        await Assert.ThrowsAsync<TrainingCanceledException>(() => _trainer.TrainAsync(training, seen, cancelled.Token));
        var first = seen.All.OfType<TrainingStep>().First();
        Assert.True(first.Epoch + first.Window > 0, $"it began anew: {first}");
    }

    private StockTraining Training(string folder, string epochs) => new()
    {
        Bars = fixture.PathOf("history.csv"),
        Out = fixture.PathOf(folder),
        Model = "lstm",
        Calendar = "XNYS",
        Arguments =
        [
            "--epochs", epochs, "--patience", epochs, "--hidden", "4", "--layers", "1", "--horizons", "1,3", "--encoder-length", "10",
            "--device", "cpu",
        ],
    };
}
