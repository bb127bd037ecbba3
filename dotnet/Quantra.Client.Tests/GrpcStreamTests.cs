namespace Quantra.Client.Tests;

/// <summary>Streams to a server.</summary>
public sealed class GrpcStreamTests(PredictorFixture fixture) : StreamTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Grpc;

    protected override Task<IStockPredictor> OpenAsync(TimeSpan timeout, int maxInFlight, TimeSpan? graceTime)
    {
        var options = new QuantraClientOptions { Timeout = timeout, MaxInFlight = maxInFlight };
        return Task.FromResult<IStockPredictor>(
            new QuantraClient(Fixture.Address, options with { GraceTime = graceTime ?? options.GraceTime }));
    }
}
