using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Sessions inside this process.</summary>
public sealed class EmbeddedSessionTests(PredictorFixture fixture) : SessionTests(fixture)
{
    protected override IStockPredictor Predictor => Fixture.Embedded;

    protected override async Task<IStockPredictor> OpenAsync() => await EmbeddedPredictor.OpenAsync(Fixture.EmbeddedOptions);
}
