using System.Runtime.Intrinsics.X86;

namespace Quantra.Client.Managed.Tests;

public sealed class NetworkTests
{
    public static TheoryData<string> Names { get; } =
    [
        .. Directory.EnumerateFiles(Path.Combine(AppContext.BaseDirectory, "Fixtures", "networks"), "*.json")
            .Select(path => Path.GetFileNameWithoutExtension(path))
            .Order(StringComparer.Ordinal),
    ];

    [Theory]
    [MemberData(nameof(Names))]
    public void Outputs_equal_those_of_torch_within_a_millionth(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var units = fixture.Run(fixture.Create(), fixture.Inputs);
        Assert.InRange(Largest(units, fixture.Units), 0, 1e-6);
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void Outputs_are_as_exact_as_those_of_torch(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var units = fixture.Run(fixture.Create(), fixture.Inputs);
        var size = Math.Max(1, fixture.Exact.Max(Math.Abs));
        Assert.InRange(Largest(units, fixture.Exact), 0, (2 * Largest(fixture.Units, fixture.Exact)) + (1e-7 * size));
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void The_bits_of_a_row_do_not_depend_on_the_other_rows(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var network = fixture.Create();
        var alone = fixture.Run(network, fixture.Inputs);
        foreach (var rows in new[] { 1, 2, 32, 75 })
        {
            var units = fixture.Run(network, fixture.Repeated(rows));
            Assert.Equal(Enumerable.Range(0, units.Length).Select(k => alone[k % alone.Length]), units);
        }
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void All_widths_of_vectors_give_the_same_bits(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var inputs = fixture.Repeated(7);
        if (!Fma.IsSupported)
            Assert.Skip("this processor has no AVX2");
        var units = fixture.Run(fixture.Create(VectorWidth.Bits256), inputs);
        Assert.Equal(units, fixture.Run(fixture.Create(VectorWidth.Bits128), inputs));
        if (Avx512F.IsSupported)
            Assert.Equal(units, fixture.Run(fixture.Create(VectorWidth.Bits512), inputs));
    }

    [Theory]
    [MemberData(nameof(Names))]
    public async Task Two_threads_give_the_bits_of_one(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var network = fixture.Create();
        var inputs = fixture.Repeated(40);
        var expected = fixture.Run(network, inputs);
        var results = await Task.WhenAll(Enumerable.Range(0, 8).Select(_ => Task.Run(() => fixture.Run(network, inputs))));
        Assert.All(results, units => Assert.Equal(expected, units));
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void A_missing_and_an_unknown_weight_are_rejected_by_name(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var weights = fixture.Weights();
        var (first, tensor) = weights.First();
        weights.Remove(first);
        Assert.Contains(first, Assert.Throws<QuantraException>(() => fixture.Create(weights)).Message, StringComparison.Ordinal);
        weights = fixture.Weights();
        weights.Add("stranger", tensor);
        Assert.Contains("stranger", Assert.Throws<QuantraException>(() => fixture.Create(weights)).Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("\"kind\": \"lstm\"", "\"kind\": \"chronos\"", "'chronos'")]
    [InlineData("\"kind_version\": 1", "\"kind_version\": 2", "kind_version is 2")]
    [InlineData("\"norm_epsilon\": 1e-05", "\"norm_epsilon\": 1e-06", "norm_epsilon")]
    [InlineData("\"layers\": 2", "\"layers\": 99", "layers is 99")]
    [InlineData("\"layers\": 2", "\"layers\": 2, \"width\": 3", "width is an unknown key")]
    [InlineData("\"layers\": 2", "\"layers\": 3", "missing weights lstm.weight_ih_l2")]
    [InlineData("\"hidden\": 20", "\"hidden\": 24", "expected F32")]
    public void What_is_unknown_is_rejected_by_name(string from, string to, string problem)
    {
        var error = Assert.Throws<QuantraException>(() => NetworkFixture.Read("lstm").CreateChanged(from, to));
        Assert.Equal(QuantraReason.ArtifactInvalid, error.Reason);
        Assert.Contains(problem, error.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void A_weight_that_is_not_finite_is_rejected_by_name()
    {
        var fixture = NetworkFixture.Read("gru");
        var weights = fixture.Weights();
        var tensor = weights["head.bias"];
        var bytes = tensor.Bytes.ToArray();
        BitConverter.TryWriteBytes(bytes.AsSpan(4), float.NaN);
        weights["head.bias"] = tensor with { Bytes = bytes };
        Assert.Contains("head.bias", Assert.Throws<QuantraException>(() => fixture.Create(weights)).Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("graph")]
    [InlineData("graph-plain")]
    public void Scores_equal_those_of_torch_within_a_millionth(string name)
    {
        var fixture = NetworkFixture.Read(name);
        var (units, scores) = (new double[fixture.Units.Length], new double[fixture.Scores.Length]);
        ((IPanelNetwork)fixture.Create()).Rank(fixture.Inputs, units, scores);
        Assert.InRange(Largest(scores, [.. fixture.Scores]), 0, 1e-6);
        Assert.InRange(Largest(units, fixture.Units), 0, 1e-6);
    }

    [Theory]
    [InlineData(6, "an edge leads to stock 6, but there are 6")]
    [InlineData(-2, "an edge leads to stock -2, but there are 6")]
    [InlineData(0, "an edge leads from a stock to itself")]
    public void An_edge_that_leads_nowhere_is_rejected(long stock, string problem)
    {
        var fixture = NetworkFixture.Read("graph");
        var weights = fixture.Weights();
        var bytes = weights["neighbours"].Bytes.ToArray();
        BitConverter.TryWriteBytes(bytes, stock);
        weights["neighbours"] = weights["neighbours"] with { Bytes = bytes };
        Assert.Contains(problem, Assert.Throws<QuantraException>(() => fixture.Create(weights)).Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("\"frequencies\": 4", "\"frequencies\": 12", "cannot remove 12 frequencies from windows of 23 sessions, which have 12")]
    [InlineData("\"patch\": 6", "\"patch\": 65", "patch is 65, but must be 1 to 64")]
    [InlineData("\"neighbours\": 3", "\"neighbours\": 4", "neighbours is I64 [6, 3], expected I64 [6, 4]")]
    public void An_impossible_setting_of_a_graph_is_rejected_by_name(string from, string to, string problem) => Assert.Contains(
        problem, Assert.Throws<QuantraException>(() => NetworkFixture.Read("graph").CreateChanged(from, to)).Message, StringComparison.Ordinal);

    private static double Largest(double[] left, double[] right) => left.Zip(right, (a, b) => Math.Abs(a - b)).Max();
}
