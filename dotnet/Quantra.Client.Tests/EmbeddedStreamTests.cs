using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Streams inside this process.</summary>
public sealed class EmbeddedStreamTests(PredictorFixture fixture) : StreamTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Embedded;

    protected override async Task<IStockPredictor> OpenAsync(TimeSpan timeout, int maxInFlight, TimeSpan? graceTime)
    {
        var options = Fixture.EmbeddedOptions with { Timeout = timeout, MaxInFlight = maxInFlight };
        return await EmbeddedPredictor.OpenAsync(options with { GraceTime = graceTime ?? options.GraceTime });
    }
}
