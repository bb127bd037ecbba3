namespace Quantra.Client.Tests;

/// <summary>Global explanations inside this process.</summary>
public sealed class EmbeddedGlobalExplanationTests(PredictorFixture fixture) : GlobalExplanationTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Embedded;
}
