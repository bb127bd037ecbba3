namespace Quantra.Client.Tests;

/// <summary>What moves a model in general, inside this process.</summary>
public sealed class EmbeddedGlobalExplanationTests(PredictorFixture fixture) : GlobalExplanationTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Embedded;
}
