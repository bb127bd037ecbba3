namespace Quantra.Client.Tests;

/// <summary>A predictor behind a server.</summary>
public sealed class GrpcPredictorTests(Doors doors) : PredictorTests(doors, doors.Grpc)
{
    protected override Task<IStockPredictor> OpenAsync(TimeSpan timeout) =>
        Task.FromResult<IStockPredictor>(new QuantraClient(Doors.Address, new QuantraClientOptions { Timeout = timeout }));
}
