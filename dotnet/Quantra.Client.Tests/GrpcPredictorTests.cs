namespace Quantra.Client.Tests;

/// <summary>A predictor behind a server.</summary>
public sealed class GrpcPredictorTests(PredictorFixture fixture) : PredictorTests(fixture, fixture.Grpc)
{
    protected override Task<IStockPredictor> OpenAsync(TimeSpan timeout, TimeSpan? graceTime)
    {
        var options = new QuantraClientOptions { Timeout = timeout };
        return Task.FromResult<IStockPredictor>(
            new QuantraClient(Fixture.Address, options with { GraceTime = graceTime ?? options.GraceTime }));
    }

    protected override IStockPredictor WithTimeout(IStockPredictor predictor, TimeSpan timeout) =>
        ((QuantraClient)predictor).WithTimeout(timeout);
}
