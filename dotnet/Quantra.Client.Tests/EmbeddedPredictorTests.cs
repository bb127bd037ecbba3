using Grpc.Core;
using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>A predictor inside this process.</summary>
public sealed class EmbeddedPredictorTests(Doors doors) : PredictorTests(doors, doors.Embedded)
{
    [Fact]
    public async Task A_folder_without_models_is_refused()
    {
        var failure = await RefusalAsync(Doors.EmbeddedOptions with { Models = Doors.PathOf("nothing") });
        Assert.Equal((StatusCode.InvalidArgument, QuantraReason.ConfigurationInvalid), (failure.Code, failure.Reason));
    }

    [Fact]
    public async Task A_folder_that_is_no_environment_is_refused()
    {
        var failure = await RefusalAsync(Doors.EmbeddedOptions with { PythonEnvironment = Doors.PathOf("models") });
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.Contains("pyvenv.cfg", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_process_has_one_Python()
    {
        var other = Directory.CreateDirectory(Doors.PathOf("other")).FullName;
        await File.WriteAllTextAsync(Path.Combine(other, "pyvenv.cfg"), "", TestContext.Current.CancellationToken);
        var failure = await RefusalAsync(Doors.EmbeddedOptions with { PythonEnvironment = other });
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.Contains(Doors.Expected.Environment, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_damaged_artifact_is_named_and_the_others_are_served()
    {
        var damaged = Directory.CreateDirectory(Path.Combine(Doors.Models, "small", "2"));
        try
        {
            await using var predictor = await EmbeddedPredictor.OpenAsync(Doors.EmbeddedOptions);
            Assert.Equal(QuantraReason.ArtifactInvalid, Assert.Single(predictor.Problems).Reason);
            Assert.Single(await predictor.ListModelsAsync(TestContext.Current.CancellationToken));
        }
        finally
        {
            damaged.Delete();
        }
    }

    protected override async Task<IStockPredictor> OpenAsync(TimeSpan timeout) =>
        await EmbeddedPredictor.OpenAsync(Doors.EmbeddedOptions with { Timeout = timeout });

    private static Task<QuantraException> RefusalAsync(EmbeddedPredictorOptions options) =>
        Assert.ThrowsAsync<QuantraException>(() => EmbeddedPredictor.OpenAsync(options));
}
