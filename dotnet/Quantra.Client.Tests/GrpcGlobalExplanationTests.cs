namespace Quantra.Client.Tests;

/// <summary>Global explanations from a server.</summary>
public sealed class GrpcGlobalExplanationTests(PredictorFixture fixture) : GlobalExplanationTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Grpc;
}
