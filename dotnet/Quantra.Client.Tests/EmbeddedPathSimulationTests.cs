using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Price paths inside this process.</summary>
public sealed class EmbeddedPathSimulationTests(PredictorFixture fixture) : PathSimulationTests(fixture)
{
    protected override IPathSimulator Simulator => (IPathSimulator)Fixture.Embedded;

    protected override IPathSimulator With(TimeSpan timeout) => ((EmbeddedPredictor)Fixture.Embedded).WithTimeout(timeout);
}
