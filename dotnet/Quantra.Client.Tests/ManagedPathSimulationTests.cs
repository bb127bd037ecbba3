using Quantra.Client.Managed;

namespace Quantra.Client.Tests;

/// <summary>Price paths without Python.</summary>
public sealed class ManagedPathSimulationTests(PredictorFixture fixture) : PathSimulationTests(fixture)
{
    protected override double Tolerance => 1e-6;

    protected override IPathSimulator Simulator => (IPathSimulator)Fixture.Managed;

    protected override IPathSimulator With(TimeSpan timeout) => ((ManagedPredictor)Fixture.Managed).WithTimeout(timeout);
}
