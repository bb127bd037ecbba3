namespace Quantra.Client.Managed.Tests;

/// <summary>Price paths, compared with those that Python recorded.</summary>
public sealed class PathTests
{
    private const double Tolerance = 1e-6;

    private static readonly int[] Counts = [1, 2, 3, 1_000_000_007];

    public static TheoryData<long, int[], int[], int[]> Draws => new()
    {
        // NumPy: r = default_rng(seed); r.permutation(10), r.integers(0, 1000, 5), r.integers(0, [1, 2, 3, 1_000_000_007])
        { 0, [4, 6, 2, 7, 3, 5, 9, 0, 8, 1], [503, 606, 970, 729, 632], [0, 1, 1, 935072430] },
        { 5, [7, 6, 1, 3, 2, 4, 0, 9, 5, 8], [408, 131, 45, 1, 48], [0, 0, 2, 190982243] },
        { (1L << 40) + 5, [8, 1, 2, 5, 3, 0, 9, 7, 4, 6], [985, 71, 361, 144, 50], [0, 0, 2, 551934922] },
    };

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private static RecordedRequest Recorded => RecordedRequest.Paths;

    private static PathSimulationRequest Request => new(Recorded.Request())
    {
        Paths = Recorded.Number("paths"),
        Seed = (1L << 40) + 5,
        Day = 3,
        Level = 0.9,
        Holdings = new Dictionary<string, double> { ["AAPL"] = 800, ["IBM"] = -300 },
        PriceLevels = [new("AAPL", 440), new("IBM", 190)],
        IncludePaths = true,
    };

    [Theory]
    [MemberData(nameof(Draws))]
    public void Random_numbers_are_NumPys(long seed, int[] permutation, int[] below1000, int[] others)
    {
        var random = new NumpyGenerator(seed);
        Assert.Equal(permutation, random.Permutation(10));
        Assert.Equal(below1000, Enumerable.Range(0, 5).Select(_ => random.Next(1000)));
        Assert.Equal(others, Counts.Select(random.Next));
    }

    [Fact]
    public async Task Paths_and_answers_are_Pythons()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var (found, expected) = (await predictor.SimulatePathsAsync(Request, Token), Recorded.Expected);
        Assert.Equal(RecordedRequest.Texts(expected.GetProperty("symbols")), found.Symbols);
        Assert.Equal(expected.GetProperty("past_days").GetInt32(), found.PastDays);
        Estimate[] estimates =
        [
            found.ValueAtRisk!,
            found.ExpectedShortfall!,
            found.Drawdown!,
            .. found.PriceProbabilities.SelectMany(one => new[] { one.Above, one.Touched }),
        ];
        var numbers = expected.GetProperty("estimates").EnumerateArray().SelectMany(one => one.EnumerateArray()).Select(one => one.GetDouble());
        AssertNear([.. numbers], [.. estimates.SelectMany(one => new[] { one.Value, one.Lower, one.Upper })]);
        var (length, step) = (found.Symbols.Count * found.Days, found.Paths / 20);
        var returns = found.Returns!.Value.ToArray();
        AssertNear(RecordedRequest.Decoded<double>(expected.GetProperty("returns")), [.. Enumerable.Range(0, 20).SelectMany(k => returns[(k * step * length)..(((k * step) + 1) * length)])]);
    }

    [Fact]
    public async Task A_symbol_with_a_short_past_is_refused_and_the_others_have_paths()
    {
        var bars = Recorded.Bars();
        var half = bars.Sessions.Length / 2;
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var request = new PathSimulationRequest(new("plain", bars with { Open = Cut(bars.Open), High = Cut(bars.High), Low = Cut(bars.Low), Close = Cut(bars.Close), Volume = Cut(bars.Volume), AdjustedClose = Cut(bars.AdjustedClose) }));
        var found = await predictor.SimulatePathsAsync(request, Token);
        Assert.Equal(["AAPL"], found.Symbols);
        Assert.StartsWith("IBM: has ", found.Refusals["IBM"].Message, StringComparison.Ordinal);
        Assert.EndsWith(" past paths, need 250; give a longer history", found.Refusals["IBM"].Message, StringComparison.Ordinal);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.SimulatePathsAsync(request with { PriceLevels = [new("IBM", 1)] }, Token));
        Assert.StartsWith("IBM has no paths: ", failure.Message, StringComparison.Ordinal);

        ReadOnlyMemory<double> Cut(ReadOnlyMemory<double> column)
        {
            var copy = column.ToArray();
            copy.AsSpan(bars.Sessions.Length, half).Fill(double.NaN);
            return copy;
        }
    }

    [Fact]
    public async Task A_target_with_a_lag_has_no_paths()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.SimulatePathsAsync(Request with { Instance = new("delayed", Recorded.Bars()) }, Token));
        Assert.Equal("delayed@1 forecasts log-return with a lag of 1; paths need a model of log returns without a lag, and bars", failure.Message);
    }

    [Fact]
    public async Task A_timeout_ends_calls()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var hasty = predictor.WithTimeout(TimeSpan.FromTicks(1));
        foreach (var call in (Func<Task>[])[() => hasty.SimulatePathsAsync(Request, Token), () => hasty.PredictAsync(Request.Instance, Token)])
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(call);
            Assert.Equal((QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded), (failure.Code, failure.Reason));
        }

        await hasty.DisposeAsync();
        Assert.Equal("plain", (await predictor.PredictAsync(Request.Instance, Token)).Model);
        Assert.Throws<ArgumentOutOfRangeException>(() => predictor.WithTimeout(TimeSpan.Zero));
    }

    private static void AssertNear(double[] expected, double[] actual)
    {
        Assert.Equal(expected.Length, actual.Length);
        for (var cell = 0; cell < expected.Length; cell++)
            Assert.True(Math.Abs(actual[cell] - expected[cell]) <= Tolerance * Math.Max(Math.Abs(expected[cell]), 0.1), $"cell {cell} is {actual[cell]}, not {expected[cell]}");
    }
}
