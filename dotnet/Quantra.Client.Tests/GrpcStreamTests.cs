namespace Quantra.Client.Tests;

/// <summary>Streams to a server.</summary>
public sealed class GrpcStreamTests(Doors doors) : StreamTests(doors)
{
    protected override IStockPredictor Predictor => Doors.Grpc;

    protected override Task<IStockPredictor> OpenAsync(TimeSpan timeout, int maxInFlight, TimeSpan? graceTime)
    {
        var options = new QuantraClientOptions { Timeout = timeout, MaxInFlight = maxInFlight };
        return Task.FromResult<IStockPredictor>(
            new QuantraClient(Doors.Address, options with { GraceTime = graceTime ?? options.GraceTime }));
    }
}
