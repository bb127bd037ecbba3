using Quantra.Client.Managed;

namespace Quantra.Client.Tests;

/// <summary>A predictor without Python, on the models that it supports.</summary>
public sealed class ManagedPredictorTests(PredictorFixture fixture) : PredictionTests(fixture, fixture.Managed)
{
    protected override double Tolerance => 1e-6;

    [Fact]
    public void Versions_that_cannot_be_computed_are_problems()
    {
        var problem = Assert.Single(((ManagedPredictor)Predictor).Problems);
        Assert.Equal(("cut", QuantraReason.ArtifactInvalid), (problem.Metadata["model"], problem.Reason));
    }

    [Theory]
    [InlineData("ensemble")]
    [InlineData("graph")]
    [InlineData("small")]
    public async Task A_model_is_described_as_by_a_server(string model) =>
        Assert.Equal(await Fixture.Grpc.GetModelAsync(model, Token), await Predictor.GetModelAsync(model, Token));
}
