namespace Quantra.Client.Tests;

/// <summary>Price paths of every predictor.</summary>
public abstract class PathSimulationTests(PredictorFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    protected PredictorFixture Fixture => fixture;

    protected abstract IPathSimulator Simulator { get; }

    /// <summary>Largest difference from Python's numbers, relative to the larger of a number and 0.1; 0 = the same bits.</summary>
    protected virtual double Tolerance => 0;

    /// <summary>The request whose result is in the fixture.</summary>
    private PathSimulationRequest Request => new(new("small", BarPanel.ReadCsv(fixture.PathOf("past.csv"))))
    {
        Paths = 300,
        Seed = 5,
        Day = 10,
        Level = 0.95,
        Holdings = new Dictionary<string, double> { ["AAPL"] = 800, ["IBM"] = -300 },
        PriceLevels = [new("AAPL", 440), new("IBM", 190)],
        IncludePaths = true,
    };

    /// <summary>The simulator with another timeout.</summary>
    protected abstract IPathSimulator With(TimeSpan timeout);

    [Fact]
    public async Task Paths_and_answers_equal_Pythons()
    {
        var (found, expected) = (await Simulator.SimulatePathsAsync(Request, Token), fixture.Expected.Of("paths"));
        AssertNumbers(expected.Bits("returns"), found.Returns!.Value);
        Assert.Equal(expected.Bits("anchor_price"), ExpectedResults.BitsOf(found.AnchorPrice));
        Estimate[] estimates =
        [
            found.ValueAtRisk!,
            found.ExpectedShortfall!,
            found.Drawdown!,
            .. found.PriceProbabilities.SelectMany(one => new[] { one.Above, one.Touched }),
        ];
        double[] numbers = [.. estimates.SelectMany(one => new[] { one.Value, one.Lower, one.Upper })];
        AssertNumbers(expected.Bits("estimates"), numbers);
        Assert.Equal(expected.Texts("symbols"), found.Symbols);
        Assert.Equal(expected.Number("past_days"), found.PastDays);
        if (Tolerance == 0)
            Assert.Equal(expected.Text("forecast_id"), found.ForecastId);
        Assert.Equal((300, 20, 10, "small", 1), (found.Paths, found.Days, found.Day, found.Model, found.Version));
        Assert.Equal(Request.Instance.Bars!.Sessions.Span[^1], found.AsOf);
        Assert.Equal([("AAPL", 440), ("IBM", 190)], found.PriceProbabilities.Select(one => (one.Symbol, one.Price)));
    }

    [Fact]
    public async Task Another_seed_gives_other_paths()
    {
        var (one, other) = (await Simulator.SimulatePathsAsync(Request, Token), await Simulator.SimulatePathsAsync(Request with { Seed = 6 }, Token));
        Assert.NotEqual(one.Returns!.Value.ToArray(), other.Returns!.Value.ToArray());
    }

    [Fact]
    public async Task A_price_is_read_by_path_symbol_and_day()
    {
        var found = await Simulator.SimulatePathsAsync(Request, Token);
        var last = found.Returns!.Value.Span[^1];
        Assert.Equal(found.AnchorPrice.Span[1] * Math.Exp(last), found.Price(299, "IBM", 20));
        Assert.Throws<ArgumentOutOfRangeException>(() => found.Price(300, "IBM", 20));
        Assert.Throws<ArgumentOutOfRangeException>(() => found.Price(-1, "IBM", 20));
        Assert.Throws<ArgumentOutOfRangeException>(() => found.Price(0, "IBM", 21));
        Assert.Throws<ArgumentOutOfRangeException>(() => found.Price(0, "IBM", 0));
        Assert.Throws<ArgumentException>(() => found.Price(0, "MSFT", 1));
    }

    [Fact]
    public async Task Without_questions_there_are_no_answers_and_no_paths()
    {
        var found = await Simulator.SimulatePathsAsync(new(Request.Instance), Token);
        Assert.Equal((1000, 20, null, null, null, null), (found.Paths, found.Day, found.ValueAtRisk, found.ExpectedShortfall, found.Drawdown, found.Returns));
        Assert.Empty(found.PriceProbabilities);
        Assert.Throws<InvalidOperationException>(() => found.Price(0, "IBM", 1));
    }

    [Fact]
    public async Task An_invalid_question_is_refused_with_its_reason()
    {
        await AssertRefusedAsync(QuantraReason.ModelNotFound, "nowhere", Request with { Instance = new("nowhere", Request.Instance.Bars!) });
        await AssertRefusedAsync(QuantraReason.UnknownHorizon, "day 21 is not simulated; use 1 to 20", Request with { Day = 21 });
        await AssertRefusedAsync(QuantraReason.InvalidInput, "there are no paths of X", Request with { PriceLevels = [new("X", 1)] });
        await AssertRefusedAsync(QuantraReason.TooFewBars, "", Request with { Instance = new("small", Request.Instance.Bars!.Last(200)) });
        await AssertRefusedAsync(QuantraReason.InvalidInput, "have 2,400,000 values, at most 2,000,000", Request with { Paths = 60_000 });

        async Task AssertRefusedAsync(string reason, string message, PathSimulationRequest bad)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => Simulator.SimulatePathsAsync(bad, Token));
            Assert.Equal(reason, failure.Reason);
            Assert.Contains(message, failure.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task An_invalid_request_is_rejected_before_the_call()
    {
        var good = new PathSimulationRequest(Request.Instance);
        Assert.Throws<ArgumentOutOfRangeException>(() => good with { Paths = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => good with { Seed = -1 });
        Assert.Throws<ArgumentOutOfRangeException>(() => good with { Day = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => good with { Level = 1 });
        Assert.Throws<ArgumentOutOfRangeException>(() => good with { Level = double.NaN });
        await Assert.ThrowsAsync<ArgumentNullException>(() => Simulator.SimulatePathsAsync(null!, Token));
        await AssertNullAsync("request.Instance is null", good with { Instance = null! });
        await AssertNullAsync("request.Instance.Model is null", good with { Instance = Request.Instance with { Model = null! } });
        await AssertNullAsync("request.Holdings is null", good with { Holdings = null! });
        await AssertNullAsync("request.PriceLevels[1] is null", good with { PriceLevels = [new("IBM", 1), null!] });
        await AssertNullAsync("request.PriceLevels[0].Symbol is null", good with { PriceLevels = [new(null!, 1)] });

        async Task AssertNullAsync(string message, PathSimulationRequest bad)
        {
            var failure = await Assert.ThrowsAsync<ArgumentException>(() => Simulator.SimulatePathsAsync(bad, Token));
            Assert.StartsWith(message, failure.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task It_can_be_cancelled()
    {
        using var source = new CancellationTokenSource();
        await source.CancelAsync();
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => Simulator.SimulatePathsAsync(Request, source.Token));
        Assert.Equal(source.Token, failure.CancellationToken);
    }

    [Fact]
    public async Task A_timeout_ends_the_call()
    {
        var failure = await Assert.ThrowsAsync<QuantraException>(() => With(TimeSpan.FromTicks(1)).SimulatePathsAsync(Request, Token));
        Assert.Equal((QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded), (failure.Code, failure.Reason));
    }

    [Fact]
    public async Task Concurrent_simulations_are_all_answered()
    {
        var found = await Task.WhenAll(Enumerable.Range(0, 20).Select(_ => Simulator.SimulatePathsAsync(Request, Token)));
        Assert.All(found, one => Assert.Equal(found[0], one));
    }

    private void AssertNumbers(long[] expected, ReadOnlyMemory<double> actual)
    {
        if (Tolerance == 0)
        {
            Assert.Equal(expected, ExpectedResults.BitsOf(actual));
            return;
        }

        Assert.Equal(expected.Length, actual.Length);
        Assert.All(expected.Zip(actual.ToArray()), pair => Assert.Equal(BitConverter.Int64BitsToDouble(pair.First), pair.Second, Tolerance * Math.Max(Math.Abs(pair.Second), 0.1)));
    }
}
