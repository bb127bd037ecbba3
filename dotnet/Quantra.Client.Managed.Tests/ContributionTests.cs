using System.Collections.Concurrent;
using System.Runtime.Intrinsics.X86;

namespace Quantra.Client.Managed.Tests;

/// <summary>Contributions to the outputs of networks, compared with those that Python recorded.</summary>
public sealed class ContributionTests
{
    private const int Rows = 2;
    private const double DefaultTolerance = 0.01;

    /// <summary>The explained points; the offsets make the last one cross the median along the path.</summary>
    private static readonly (int Horizon, int Quantile)[] Points = [(0, 2), (1, 0), (2, 3)];

    private static readonly int[] NodeCounts = [3, 6, 12, 24];

    private static readonly ConcurrentDictionary<string, Contributions[]> Explained = new(StringComparer.Ordinal);

    public static TheoryData<string> Names => NetworkTests.Names;

    public static TheoryData<string> Gradients { get; } = [.. NetworkTests.Names.Select(name => (string)name.Data).Where(name => !IsTrees(name))];

    [Theory]
    [MemberData(nameof(Names))]
    public void Cells_equal_those_of_Python(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var (found, cells) = (Explain(name), Recorded(fixture));
        Assert.All(found.Zip(cells), pair =>
        {
            var largest = pair.Second.Max(Math.Abs);
            Assert.InRange(pair.Second.Zip(Cells(pair.First), (a, b) => Math.Abs(a - b)).Max(), 0, (IsTrees(name) ? 1e-12 : 1e-5) * largest);
        });
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void Both_ends_and_the_nodes_equal_those_of_Python(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var (found, ends) = (Explain(name), fixture.Explanation("ends").ToDouble());
        for (var index = 0; index < found.Length; index++)
        {
            var (point, row) = (index / Rows, index % Rows);
            Assert.Equal(ends[(point * 2 * Rows) + row], found[index].BaselinePrediction, 1e-7);
            Assert.Equal(ends[(((point * 2) + 1) * Rows) + row], found[index].Prediction, 1e-7);
        }

        Assert.Equal(fixture.Explanation("nodes").ToInt32(), found.Select(one => one.Nodes));
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void Contributions_add_up_to_the_change_of_the_forecast(string name) => Assert.All(Explain(name), one =>
    {
        var (gap, difference) = (Math.Abs(one.Total - (one.Prediction - one.BaselinePrediction)), Math.Abs(one.Prediction - one.BaselinePrediction));
        Assert.True(gap <= (IsTrees(name) ? 1e-12 : one.RelativeGap * Math.Max(difference, 1) * 1.001));
        Assert.Equal(one.RelativeGap <= DefaultTolerance, one.Converged);
    });

    [Theory]
    [MemberData(nameof(Gradients))]
    public void With_many_nodes_the_gap_of_a_smooth_forecast_vanishes(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var network = fixture.Create();
        var found = fixture.CreateExplainer(network).Explain(fixture.RowOf(1, network), Points[..2], 1e-4, [96], CallLimit.None);
        Assert.All(found, one => Assert.InRange(one.RelativeGap, 0, 1e-4));
    }

    [Fact]
    public void Only_location_scale_and_offsets_contribute_to_HAR() => Assert.All(Explain("har"), one =>
    {
        Assert.All(one.Observed.Concat(one.Known).Concat(one.Static), cell => Assert.Equal(0, cell));
        Assert.NotEqual(0, one.Scale);
    });

    [Fact]
    public void An_unknown_cell_contributes_nothing()
    {
        var fixture = NetworkFixture.Read("lstm");
        var observed = Explain("lstm")[0].Observed;
        Assert.All(fixture.RowOf(0).Mask.Zip(observed), pair => Assert.True(pair.First || pair.Second == 0));
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void All_widths_of_vectors_give_the_same_bits(string name)
    {
        if (!Fma.IsSupported)
            Assert.Skip("this processor has no AVX2");
        var fixture = NetworkFixture.Read(name);
        VectorWidth[] widths = Avx512F.IsSupported ? [VectorWidth.Bits128, VectorWidth.Bits512] : [VectorWidth.Bits128];
        var expected = Bits(fixture.Create(VectorWidth.Bits256), fixture);
        Assert.All(widths, width => Assert.Equal(expected, Bits(fixture.Create(width), fixture)));
    }

    [Theory]
    [MemberData(nameof(Names))]
    public async Task Two_threads_and_other_points_give_the_same_bits(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var network = fixture.Create();
        var expected = Bits(network, fixture);
        Assert.Equal(expected, Cells(fixture.CreateExplainer(network).Explain(fixture.RowOf(0, network), Points, DefaultTolerance, [6], CallLimit.None)[0]));
        var results = await Task.WhenAll(Enumerable.Range(0, 3).Select(_ => Task.Run(() => Bits(network, fixture))));
        Assert.All(results, cells => Assert.Equal(expected, cells));
    }

    [Fact]
    public void A_cancelled_explanation_ends_before_the_next_forward_pass()
    {
        using var source = new CancellationTokenSource();
        var fixture = NetworkFixture.Read("gru");
        var network = new CancellingNetwork((IDifferentiableNetwork)fixture.Create(), source);
        var explainer = fixture.CreateExplainer(network);
        Assert.Throws<OperationCanceledException>(() => explainer.Explain(fixture.RowOf(0), Points, DefaultTolerance, [384], new CallLimit(TimeSpan.FromMinutes(1), source.Token)));
        Assert.Equal(1, network.Traces);
    }

    [Fact]
    public void A_forecast_that_is_not_finite_is_rejected()
    {
        var fixture = NetworkFixture.Read("gru");
        var window = fixture.RowOf(0);
        window.Location[0] = double.PositiveInfinity;
        var error = Assert.Throws<QuantraException>(
            () => fixture.CreateExplainer(fixture.Create()).Explain(window, Points, DefaultTolerance, [3], CallLimit.None));
        Assert.Equal(QuantraReason.InvalidInput, error.Reason);
    }

    [Fact]
    public void A_rule_integrates_its_highest_degree_exactly()
    {
        foreach (var count in GaussLegendre.NodeCounts)
        {
            var rule = GaussLegendre.Of(count);
            var power = rule.Positions.Zip(rule.Weights, (x, weight) => weight * Math.Pow(x, (2 * count) - 1)).Sum();
            Assert.Equal(1, 2 * count * power, 1e-12);
            Assert.Equal(1, rule.Weights.Sum(), 1e-14);
        }
    }

    private static bool IsTrees(string name) => name.StartsWith("trees", StringComparison.Ordinal);

    /// <summary>The contributions of all points and rows, point by point.</summary>
    private static Contributions[] Explain(string name) => Explained.GetOrAdd(name, _ =>
    {
        var fixture = NetworkFixture.Read(name);
        var network = fixture.Create();
        var explainer = fixture.CreateExplainer(network);
        var rows = Enumerable.Range(0, Rows)
            .Select(row => explainer.Explain(fixture.RowOf(row, network), Points, DefaultTolerance, NodeCounts, CallLimit.None))
            .ToArray();
        return [.. Points.SelectMany((_, point) => rows.Select(row => row[point]))];
    });

    private static double[] Bits(INetwork network, NetworkFixture fixture) =>
        Cells(fixture.CreateExplainer(network).Explain(fixture.RowOf(0, network), Points[..1], DefaultTolerance, [6], CallLimit.None)[0]);

    private static double[] Cells(Contributions one) => [.. one.Observed, .. one.Known, .. one.Static, one.Location, one.Scale, one.Conformal, one.Neighbours];

    /// <summary>Python's cells, in the order of <see cref="Explain"/>.</summary>
    private static double[][] Recorded(NetworkFixture fixture)
    {
        var alone = fixture.Explanation("alone").ToDouble();
        return [.. Enumerable.Range(0, Points.Length * Rows).Select(index => (double[])
        [
            .. Part("observed", index),
            .. Part("known", index),
            .. Part("static", index),
            .. Enumerable.Range(0, 3).Select(k => alone[(((index / Rows * 4) + k) * Rows) + (index % Rows)]),
            fixture.HasExplanation("neighbours") ? fixture.Explanation("neighbours").ToDouble()[index] : 0,
        ])];

        double[] Part(string name, int index)
        {
            var values = fixture.Explanation(name).ToDouble();
            var width = values.Length / (Points.Length * Rows);
            return values[(index * width)..((index + 1) * width)];
        }
    }

    /// <summary>A network that cancels a call when it begins a forward pass.</summary>
    private sealed class CancellingNetwork(IDifferentiableNetwork inner, CancellationTokenSource source) : IDifferentiableNetwork
    {
        public int Traces { get; private set; }

        public void Run(NetworkInputs inputs, Span<double> units) => inner.Run(inputs, units);

        public INetworkTrace Trace(NetworkInputs inputs)
        {
            Traces++;
            source.Cancel();
            return inner.Trace(inputs);
        }
    }
}
