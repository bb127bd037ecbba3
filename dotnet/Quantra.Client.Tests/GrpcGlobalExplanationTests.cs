namespace Quantra.Client.Tests;

/// <summary>What moves a model in general, from a server.</summary>
public sealed class GrpcGlobalExplanationTests(Doors doors) : GlobalExplanationTests(doors)
{
    protected override IStockPredictor Predictor => Doors.Grpc;
}
