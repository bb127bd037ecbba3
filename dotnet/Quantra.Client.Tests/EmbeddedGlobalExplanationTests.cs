namespace Quantra.Client.Tests;

/// <summary>What moves a model in general, inside this process.</summary>
public sealed class EmbeddedGlobalExplanationTests(Doors doors) : GlobalExplanationTests(doors)
{
    protected override IStockPredictor Predictor => Doors.Embedded;
}
