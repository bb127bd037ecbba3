namespace Quantra.Client.Tests;

/// <summary>What moves a model in general, from a server.</summary>
public sealed class GrpcGlobalExplanationTests(PredictorFixture fixture) : GlobalExplanationTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Grpc;
}
