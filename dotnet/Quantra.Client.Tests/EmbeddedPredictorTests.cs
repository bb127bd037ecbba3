using Quantra.Client.Embedded;
using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>A predictor inside this process.</summary>
public sealed class EmbeddedPredictorTests(PredictorFixture fixture) : PredictorTests(fixture, fixture.Embedded)
{
    [Fact]
    public async Task A_folder_without_models_is_rejected()
    {
        var failure = await RefusalAsync(Fixture.EmbeddedOptions with { Models = Fixture.PathOf("nothing") });
        Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid), (failure.Code, failure.Reason));
    }

    [Theory]
    [InlineData("models", "tpu")]
    [InlineData("models", "\ud800")]
    [InlineData("\ud800", "cpu")]
    [InlineData("\0", "cpu")]
    public async Task An_invalid_folder_or_device_is_rejected(string models, string device)
    {
        var failure = await RefusalAsync(Fixture.EmbeddedOptions with { Models = Fixture.PathOf(models), Device = device });
        Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid), (failure.Code, failure.Reason));
    }

    [Fact]
    public async Task A_folder_that_is_not_an_environment_is_rejected()
    {
        var failure = await RefusalAsync(Fixture.EmbeddedOptions with { PythonEnvironment = Fixture.PathOf("models") });
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.Contains("pyvenv.cfg", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_process_runs_only_one_Python()
    {
        var other = Directory.CreateDirectory(Fixture.PathOf("other")).FullName;
        await File.WriteAllTextAsync(Path.Combine(other, "pyvenv.cfg"), "", TestContext.Current.CancellationToken);
        var failure = await RefusalAsync(Fixture.EmbeddedOptions with { PythonEnvironment = other });
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.Contains(Fixture.Expected.Environment, failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("of nowhere", "does not name the home and version of Python")]
    [InlineData("of an old one", "it is Python 3.10, but 3.11 or newer is required")]
    [InlineData("without a library", "no shared library of Python 3.98")]
    [InlineData("with a broken library", "does not load")]
    public void An_environment_whose_Python_cannot_start_is_rejected_and_another_can_be_tried(string environment, string expected)
    {
        var failure = Fixture.Refused[environment];
        Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid), (failure.Code, failure.Reason));
        Assert.StartsWith("the Python of ", failure.Message, StringComparison.Ordinal);
        Assert.Contains(expected, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task Different_paths_to_one_environment_are_recognized()
    {
        var environment = Fixture.Expected.Environment;
        List<string> ways = [environment + Path.DirectorySeparatorChar, Path.Combine(environment, "..", Path.GetFileName(environment))];
        if (!OperatingSystem.IsWindows()) // on Windows, only administrators can create links
            ways.Add(Directory.CreateSymbolicLink(Fixture.PathOf("linked"), environment).FullName);
        Assert.All(ways, way => Assert.NotEqual(environment, way));
        foreach (var way in ways)
        {
            await using var predictor = await EmbeddedPredictor.OpenAsync(Fixture.EmbeddedOptions with { PythonEnvironment = way }, Token);
            Assert.NotEmpty(await predictor.ListModelsAsync(Token));
        }
    }

    [Fact]
    public async Task Opening_with_a_cancelled_token_throws()
    {
        using var source = new CancellationTokenSource();
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => EmbeddedPredictor.OpenAsync(Fixture.EmbeddedOptions, source.Token));
    }

    [Fact]
    public void A_damaged_artifact_is_named_with_its_file()
    {
        var problem = Assert.Single(((EmbeddedPredictor)Fixture.Embedded).Problems);
        Assert.Equal((QuantraStatus.DataLoss, QuantraReason.ArtifactInvalid), (problem.Code, problem.Reason));
        Assert.Contains("cut/1", problem.Message, StringComparison.Ordinal);
        Assert.Contains("weights.safetensors", problem.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void A_status_of_another_version_is_INTERNAL()
    {
        Assert.Equal(QuantraReason.Internal, StatusReader.Error([]).Reason);
        Assert.Equal(QuantraReason.Internal, StatusReader.Error([0xff]).Reason);
    }

    [Fact]
    public void Options_out_of_range_are_rejected()
    {
        Assert.Throws<ArgumentOutOfRangeException>(() => Fixture.EmbeddedOptions with { Timeout = TimeSpan.MaxValue });
        Assert.Throws<ArgumentOutOfRangeException>(() => Fixture.EmbeddedOptions with { MaxBatchRows = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => Fixture.EmbeddedOptions with { MaxInFlight = 0 });
    }

    protected override async Task<IStockPredictor> OpenAsync(TimeSpan timeout, TimeSpan? graceTime) =>
        await EmbeddedPredictor.OpenAsync(
            Fixture.EmbeddedOptions with { Timeout = timeout, GraceTime = graceTime ?? Fixture.EmbeddedOptions.GraceTime });

    protected override IStockPredictor WithTimeout(IStockPredictor predictor, TimeSpan timeout) =>
        ((EmbeddedPredictor)predictor).WithTimeout(timeout);

    private static Task<QuantraException> RefusalAsync(EmbeddedPredictorOptions options) =>
        Assert.ThrowsAsync<QuantraException>(() => EmbeddedPredictor.OpenAsync(options));
}
