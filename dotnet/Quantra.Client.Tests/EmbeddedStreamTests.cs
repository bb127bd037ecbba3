using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Streams inside this process.</summary>
public sealed class EmbeddedStreamTests(Doors doors) : StreamTests(doors)
{
    protected override IStockPredictor Predictor => Doors.Embedded;

    protected override async Task<IStockPredictor> OpenAsync(TimeSpan timeout, int maxInFlight, TimeSpan? graceTime)
    {
        var options = Doors.EmbeddedOptions with { Timeout = timeout, MaxInFlight = maxInFlight };
        return await EmbeddedPredictor.OpenAsync(options with { GraceTime = graceTime ?? options.GraceTime });
    }
}
