using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Sessions inside this process.</summary>
public sealed class EmbeddedSessionTests(Doors doors) : SessionTests(doors)
{
    protected override IStockPredictor Predictor => Doors.Embedded;

    protected override async Task<IStockPredictor> OpenAsync() => await EmbeddedPredictor.OpenAsync(Doors.EmbeddedOptions);
}
