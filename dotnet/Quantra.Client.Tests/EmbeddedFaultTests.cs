namespace Quantra.Client.Tests;

/// <summary>Faults of calls inside this process.</summary>
public sealed class EmbeddedFaultTests(PredictorFixture fixture) : FaultTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Embedded;
}
