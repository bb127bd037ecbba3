namespace Quantra.Client.Tests;

/// <summary>Faults of calls inside this process.</summary>
public sealed class EmbeddedFaultTests(Doors doors) : FaultTests(doors)
{
    protected override IStockPredictor Predictor => Doors.Embedded;
}
