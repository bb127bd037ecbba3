using Quantra.Client.Testing;

namespace Quantra.Client.Tests;

/// <summary>The predictor for users' tests, and the builders of results.</summary>
public sealed class FakeStockPredictorTests(PredictorFixture fixture)
{
    private static readonly QuantraException Down = new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "down").ToException();

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private BarPanel Panel => BarPanel.ReadCsv(fixture.PathOf("bars.csv"));

    [Theory]
    [InlineData("small")]
    [InlineData("graph")]
    [InlineData("delayed")]
    public async Task Real_results_satisfy_the_validity_checks(string model)
    {
        var request = new PredictionRequest(model, Panel);
        AssertValid.Forecast(await fixture.Grpc.PredictAsync(request, Token));
        AssertValid.Attribution(await fixture.Grpc.ExplainAsync(new(request, 5) { Detail = ExplanationDetail.Cells }, Token));
        AssertValid.Model(await fixture.Grpc.GetModelAsync(model, Token));
    }

    [Fact]
    public async Task Real_price_paths_satisfy_the_validity_checks()
    {
        var request = Questions(new("small", await BarPanel.ReadCsvAsync(fixture.PathOf("past.csv"), Token)));
        AssertValid.Simulation(await ((IPathSimulator)fixture.Grpc).SimulatePathsAsync(request, Token), request);
    }

    [Fact]
    public void Results_are_valid_with_defaults_and_with_set_values()
    {
        var refusals = new Dictionary<string, QuantraError> { ["B"] = Down.Error };
        AssertValid.Forecast(new ForecastBuilder().Build());
        AssertValid.Forecast(new ForecastBuilder { Lag = 1, Horizons = [1], Quantiles = [0.5] }.Build());
        AssertValid.Forecast(new ForecastBuilder { TargetKind = "log-volatility" }.Build());
        AssertValid.Forecast(new ForecastBuilder { Symbols = ["A", "B", "C"], Refusals = refusals, Score = (symbol, days) => symbol[0] * days }.Build());
        AssertValid.Attribution(new AttributionBuilder().Build());
        AssertValid.Attribution(new AttributionBuilder { Symbols = ["A", "B"], Baseline = 0.5, Detail = ExplanationDetail.Cells, Value = (symbol, _) => symbol[0] }.Build());
        AssertValid.Model(new ModelInfoBuilder().Build());
        AssertValid.Model(new ModelInfoBuilder { Name = "other", EncoderLength = 60, Horizons = [5], Quantiles = [0.5] }.Build());
    }

    [Fact]
    public void A_forecast_has_the_set_values()
    {
        var builder = new ForecastBuilder { Symbols = ["A", "B"], Horizons = [1, 5], LastClose = symbol => symbol == "A" ? 10 : 20 };
        var forecast = (builder with { Value = (symbol, days, level) => (symbol == "A" ? 0 : 1) + days + level }).Build();
        Assert.Equal((1.1, 6.9), (forecast.Value("A", 1, 0.1), forecast.Value("B", 5, 0.9)));
        Assert.Equal(20 * Math.Exp(6.9), forecast.Price("B", 5, 0.9), 9);
        Assert.Equal([new DateOnly(2024, 7, 1), new DateOnly(2024, 7, 5)], forecast.TargetSessions);
        var ranked = (builder with { Score = (symbol, _) => symbol == "A" ? 1 : 2 }).Build();
        Assert.Equal((2, 1), (ranked.Rank("A", 5), ranked.Rank("B", 5)));
    }

    [Fact]
    public void Values_that_no_predictor_returns_are_rejected()
    {
        Refused(new ForecastBuilder { Symbols = [] }, "at least one");
        Refused(new ForecastBuilder { Symbols = ["A", "A"] }, "duplicates");
        Refused(new ForecastBuilder { Horizons = [5, 1] }, "5, 1");
        Refused(new ForecastBuilder { Horizons = [0] }, "from 1 on");
        Refused(new ForecastBuilder { Quantiles = [0.5, 1] }, "0.5, 1");
        Refused(new ForecastBuilder { Value = (_, _, level) => -level }, "make the quantiles increase");
        Refused(new ForecastBuilder { Refusals = new Dictionary<string, QuantraError> { ["X"] = Down.Error } }, "Refusals has X");
        Assert.Throws<ArgumentException>(() => new AttributionBuilder { Inputs = [] }.Build());
        Assert.Throws<ArgumentException>(() => new ModelInfoBuilder { Quantiles = [] }.Build());

        static void Refused(ForecastBuilder builder, string expected) =>
            Assert.Contains(expected, Assert.Throws<ArgumentException>(builder.Build).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task By_default_it_forecasts_and_explains_the_request()
    {
        await using var fake = new FakeStockPredictor();
        var request = new PredictionRequest("stock", Panel);
        var forecast = await fake.PredictAsync(request, Token);
        AssertValid.Forecast(forecast);
        Assert.Equal((request.Bars!.Symbols, request.Bars.Sessions.Span[^1]), (forecast.Symbols, forecast.AsOf));
        Assert.Equal(request.Bars.Select("IBM").Close.Span[^1], forecast.AnchorPrice!.Value.Span[1]);
        var attributions = await fake.ExplainManyAsync(new(request, []) { Symbols = ["IBM"], Detail = ExplanationDetail.Times }, Token);
        Assert.All(attributions, AssertValid.Attribution);
        Assert.Equal([(1, 0.5), (5, 0.5), (10, 0.5), (20, 0.5)], attributions.Select(one => (one.Horizon, one.Quantile)));
        Assert.Equal(["IBM"], (await fake.ExplainAsync(new(request, 20, 0.9) { Symbols = ["IBM"] }, Token)).Symbols);
        Assert.Equal([request], fake.Predictions);
        Assert.Equal([0, 1], fake.Explanations.Select(asked => asked.Targets.Count));
    }

    [Fact]
    public async Task It_explains_with_the_requested_method_and_refuses_an_unknown_one()
    {
        var model = new ModelInfoBuilder().Build() with { ExplainMethods = ["shapley", "occlusion"] };
        await using var fake = new FakeStockPredictor(model);
        var request = new PredictionRequest("stock", Panel);
        Assert.Equal("shapley", (await fake.ExplainAsync(new(request, 5), Token)).Method);
        Assert.Equal("occlusion", (await fake.ExplainAsync(new(request, 5) { Method = "occlusion" }, Token)).Method);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => fake.ExplainAsync(new(request, 5) { Method = "magic" }, Token));
        Assert.Equal((QuantraStatus.Unimplemented, QuantraReason.ExplainUnsupported), (failure.Code, failure.Reason));
        Assert.Equal("unknown method 'magic'; the model supports ['shapley', 'occlusion']", failure.Message);
    }

    [Fact]
    public async Task By_default_it_simulates_the_forecast_of_the_request()
    {
        await using var fake = new FakeStockPredictor();
        var request = Questions(new("stock", Panel));
        var (found, forecast) = (await fake.SimulatePathsAsync(request, Token), await fake.PredictAsync(request.Instance, Token));
        AssertValid.Simulation(found, request);
        Assert.Equal((forecast.Symbols, forecast.AsOf, forecast.ForecastId, 20), (found.Symbols, found.AsOf, found.ForecastId, found.Days));
        var closes = Enumerable.Range(0, found.Paths).Select(path => found.Price(path, "IBM", 20)).Order().ToArray();
        Assert.InRange(forecast.Price("IBM", 20, 0.9), closes[(9 * closes.Length / 10) - 1], closes[9 * closes.Length / 10]);
        var unasked = await fake.SimulatePathsAsync(new(request.Instance), Token);
        Assert.Equal((1000, 20, null, null, null, null), (unasked.Paths, unasked.Day, unasked.ValueAtRisk, unasked.ExpectedShortfall, unasked.Drawdown, unasked.Returns));
        Assert.Equal([request, new(request.Instance)], fake.Simulations);
    }

    [Fact]
    public void Answers_follow_from_the_set_paths()
    {
        double[][] closes = [[90, 80, 1], [110, 95, 1], [120, 130, 1], [100, 105, 1]];
        var bars = Panel.Select("IBM") with { Close = Enumerable.Repeat(100.0, Panel.Sessions.Length).ToArray() };
        var request = new PathSimulationRequest(new("stock", bars))
        {
            Paths = 4,
            Day = 2,
            Level = 0.5,
            Holdings = new Dictionary<string, double> { ["IBM"] = 1000 },
            PriceLevels = [new("IBM", 109), new("IBM", 96)],
        };
        var builder = new PathSimulationBuilder(request) { Model = new ModelInfoBuilder { Horizons = [3] }.Build() };
        var found = (builder with { Return = (path, _, day) => Math.Log(closes[path][day - 1] / 100) }).Build();
        Assert.Equal((3, 2), (found.Days, found.Day));
        Assert.Equal(0, found.ValueAtRisk!.Value, 9); // profits are -200, -50, 300 and 50
        Assert.Equal(125, found.ExpectedShortfall!.Value, 9);
        Assert.Equal((200, 50), (Math.Round(found.ExpectedShortfall.Upper, 9), Math.Round(found.ExpectedShortfall.Lower, 9))); // paths 0 and 2, 1 and 3
        Assert.Equal(0.1925, found.Drawdown!.Value, 9); // 0.2, 0.15, 0 and 0
        Assert.Equal([(0.25, 0.5), (0.5, 0.5)], found.PriceProbabilities.Select(one => (one.Above.Value, one.Touched.Value)));
    }

    [Fact]
    public void A_question_that_no_simulator_answers_is_refused()
    {
        var request = Questions(new("stock", Panel));
        AssertRefused(QuantraReason.UnknownHorizon, "day 21 is not simulated", new(request with { Day = 21 }));
        AssertRefused(QuantraReason.InvalidInput, "there are no paths of X", new(request with { PriceLevels = [new("X", 1)] }));
        AssertRefused(QuantraReason.InvalidInput, "price 0 is not above 0", new(request with { PriceLevels = [new("IBM", 0)] }));
        AssertRefused(QuantraReason.InvalidInput, "all holdings are 0", new(request with { Holdings = new Dictionary<string, double> { ["IBM"] = 0 } }));
        AssertRefused(QuantraReason.InvalidInput, "with a lag of 1", new(request) { Model = new ModelInfoBuilder { Lag = 1 }.Build() });
        var endless = Assert.Throws<ArgumentException>(new PathSimulationBuilder(request) { Return = (_, _, day) => 1.0 / (day - 3) }.Build);
        Assert.Contains("path 0 of AAPL on day 3", endless.Message, StringComparison.Ordinal);

        static void AssertRefused(string reason, string message, PathSimulationBuilder builder)
        {
            var failure = Assert.Throws<QuantraException>(builder.Build);
            Assert.Equal(reason, failure.Reason);
            Assert.Contains(message, failure.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task Handlers_answer_one_request_at_a_time()
    {
        await using var fake = new FakeStockPredictor();
        fake.OnPredict = (asked, _) => asked.RequestId == "bad" ? throw Down : Task.FromResult(new ForecastBuilder { Model = asked.RequestId }.Build());
        PredictionRequest[] requests = [new("stock", Panel) { RequestId = "good" }, new("stock", Panel) { RequestId = "bad" }];
        var results = await fake.PredictManyAsync(requests, Token);
        Assert.Equal(("good", "good", Down.Error), (results[0].RequestId, results[0].Forecast!.Model, results[1].Error));
        Assert.Same(Down.Error, (await Assert.ThrowsAsync<QuantraException>(() => fake.PredictAsync(requests[1], Token))).Error);
        fake.OnExplain = (_, _) => throw new TimeoutException();
        await Assert.ThrowsAsync<TimeoutException>(() => fake.ExplainAsync(new(requests[0], 5), Token));
        fake.OnSimulate = (_, _) => throw Down;
        Assert.Same(Down, await Assert.ThrowsAsync<QuantraException>(() => fake.SimulatePathsAsync(new(requests[0]), Token)));
        Assert.Equal(["good", "bad", "bad"], fake.Predictions.Select(asked => asked.RequestId));
    }

    [Fact]
    public async Task Every_call_throws_the_set_failure()
    {
        await using var fake = new FakeStockPredictor { Failure = Down };
        var request = new PredictionRequest("stock", Panel);
        Func<Task>[] calls =
        [
            () => fake.PredictAsync(request, Token),
            () => fake.PredictManyAsync([request], Token),
            () => fake.ExplainAsync(new(request, 5), Token),
            () => fake.ExplainManyAsync(new(request, []), Token),
            () => fake.SimulatePathsAsync(new(request), Token),
            () => fake.ListModelsAsync(Token),
            () => fake.GetModelAsync("stock", Token),
        ];
        foreach (var call in calls)
            Assert.Same(Down, await Assert.ThrowsAsync<QuantraException>(call));
        fake.Failure = null;
        foreach (var call in calls)
            await call();
        await fake.DisposeAsync();
        Assert.True(fake.IsDisposed);
        foreach (var call in calls)
            await Assert.ThrowsAsync<ObjectDisposedException>(call);
    }

    [Fact]
    public async Task A_call_waits_until_the_test_answers_or_cancels()
    {
        await using var fake = new FakeStockPredictor();
        var answer = new TaskCompletionSource<Forecast>();
        fake.OnPredict = (_, cancelled) => answer.Task.WaitAsync(cancelled);
        var call = fake.PredictAsync(new("stock", Panel), Token);
        Assert.False(call.IsCompleted);
        answer.SetResult(new ForecastBuilder().Build());
        Assert.Equal(new ForecastBuilder().Build(), await call);
        using var source = new CancellationTokenSource();
        answer = new();
        var other = fake.PredictAsync(new("stock", Panel), source.Token);
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => other);
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => fake.ListModelsAsync(source.Token));
    }

    [Theory]
    [InlineData("a", 2)]
    [InlineData("a@1", 1)]
    [InlineData("a@champion", 2)]
    [InlineData("b", 4)]
    public async Task References_resolve_as_in_a_predictor(string reference, int version)
    {
        ModelInfoBuilder[] versions =
        [
            new() { Name = "a", Version = 1, IsDefault = false },
            new() { Name = "a", Version = 2, Aliases = ["champion"] },
            new() { Name = "a", Version = 3, IsDefault = false },
            new() { Name = "b", Version = 4, IsDefault = false },
        ];
        await using var fake = new FakeStockPredictor([.. versions.Select(one => one.Build())]);
        Assert.Equal(version, (await fake.GetModelAsync(reference, Token)).Version);
        Assert.Equal(4, (await fake.ListModelsAsync(Token)).Count);
        await AssertRefusedAsync(QuantraReason.ModelNotFound, () => fake.GetModelAsync("c", Token));
        await AssertRefusedAsync(QuantraReason.VersionNotFound, () => fake.GetModelAsync("a@9", Token));
        await AssertRefusedAsync(QuantraReason.ModelNotFound, () => fake.PredictAsync(new("c", Panel), Token));
        await AssertRefusedAsync(QuantraReason.UnknownHorizon, () => fake.ExplainAsync(new(new("a", Panel), 3), Token));
        await AssertRefusedAsync(QuantraReason.UnknownQuantile, () => fake.ExplainAsync(new(new("a", Panel), 5, 0.4), Token));
    }

    [Fact]
    public async Task Null_is_rejected()
    {
        await using var fake = new FakeStockPredictor();
        await Assert.ThrowsAsync<ArgumentNullException>(() => fake.PredictAsync(null!, Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => fake.PredictManyAsync(null!, Token));
        await Assert.ThrowsAsync<ArgumentException>(() => fake.PredictManyAsync([null!], Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => fake.ExplainAsync(null!, Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => fake.ExplainManyAsync(null!, Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => fake.GetModelAsync(null!, Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => fake.GetModelAsync(new ModelReference(null!), Token));
        Assert.Throws<ArgumentException>(() => new FakeStockPredictor([null!]));
        Assert.Throws<ArgumentNullException>(() => new ForecastBuilder { Symbols = null! }.Build());
        Assert.Throws<ArgumentNullException>(() => new ForecastBuilder { Refusals = null! }.Build());
        Assert.Throws<ArgumentNullException>(() => new AttributionBuilder { Inputs = null! }.Build());
    }

    private static async Task AssertRefusedAsync(string reason, Func<Task> call) =>
        Assert.Equal(reason, (await Assert.ThrowsAsync<QuantraException>(call)).Reason);

    private static PathSimulationRequest Questions(PredictionRequest instance) => new(instance)
    {
        Paths = 300,
        Day = 10,
        Level = 0.95,
        Holdings = new Dictionary<string, double> { ["AAPL"] = 800, ["IBM"] = -300 },
        PriceLevels = [new("AAPL", 440), new("IBM", 190)],
        IncludePaths = true,
    };
}
