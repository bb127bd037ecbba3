namespace Quantra.Client.Tests;

/// <summary>Global explanations without Python.</summary>
public sealed class ManagedGlobalExplanationTests(PredictorFixture fixture) : GlobalExplanationTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Managed;

    protected override double Tolerance => 1e-5;
}
