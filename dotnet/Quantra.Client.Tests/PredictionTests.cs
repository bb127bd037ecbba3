using System.Globalization;

namespace Quantra.Client.Tests;

/// <summary>Tests of the forecasts and explanations of every predictor, with Python or without.</summary>
public abstract class PredictionTests
{
    private const int Last = 199; // the fixture's panels have 200 sessions

    private static readonly Dictionary<string, Func<BarSeries, BarSeries>> Spoiled = new()
    {
        ["too few bars"] = bars => bars.Last(20),
        ["a bar with some fields NaN"] = bars => bars with { Open = With(bars.Open, Last, double.NaN) },
        ["an infinite price"] = bars => bars with { Close = With(bars.Close, Last, double.PositiveInfinity) },
        ["a negative price"] = bars => bars with { Low = With(bars.Low, Last, -1) },
        ["a high below the low"] = bars => bars with { High = With(bars.High, Last, bars.Low.Span[Last] / 2) },
        ["unsorted sessions"] = bars => bars with { Sessions = With(bars.Sessions, Last, bars.Sessions.Span[0]) },
        ["a session twice"] = bars => bars with { Sessions = With(bars.Sessions, Last, bars.Sessions.Span[Last - 1]) },
        ["a column that is too short"] = bars => bars with { Volume = bars.Volume[1..] },
        ["a missing session"] = WithoutSecondToLast,
        ["a foreign calendar"] = bars => bars with { Calendar = "XLON" },
        ["dates beyond the calendar"] = bars => bars with { Sessions = Shifted(bars.Sessions, 365 * 12) },
        ["dates in the future"] = bars => bars with { Sessions = Shifted(bars.Sessions, 365 * 100) },
        ["no symbol"] = bars => bars with { Symbol = "" },
    };

    protected PredictionTests(PredictorFixture fixture, IStockPredictor predictor)
    {
        ArgumentNullException.ThrowIfNull(fixture);
        (Fixture, Predictor, Expected) = (fixture, predictor, fixture.Expected);
    }

    public static TheoryData<string, string> BadBars => new()
    {
        { "too few bars", QuantraReason.TooFewBars },
        { "a bar with some fields NaN", QuantraReason.BarsInvalid },
        { "an infinite price", QuantraReason.BarsInvalid },
        { "a negative price", QuantraReason.BarsInvalid },
        { "a high below the low", QuantraReason.BarsInvalid },
        { "unsorted sessions", QuantraReason.BarsInvalid },
        { "a session twice", QuantraReason.BarsInvalid },
        { "a column that is too short", QuantraReason.MalformedRequest },
        { "a missing session", QuantraReason.SessionGap },
        { "a foreign calendar", QuantraReason.BarsInvalid },
        { "dates beyond the calendar", QuantraReason.CalendarEnded },
        { "dates in the future", QuantraReason.BarsInvalid },
        { "no symbol", QuantraReason.BarsInvalid },
    };

    protected PredictorFixture Fixture { get; }

    protected IStockPredictor Predictor { get; }

    protected ExpectedResults Expected { get; }

    /// <summary>Names of the models that the predictor serves, sorted.</summary>
    protected static IReadOnlyList<string> Models { get; } = ["covariates", "delayed", "ensemble", "fitted", "graph", "small", "tft"];

    /// <summary>Largest difference from Python's numbers, relative to the larger of a number and 0.1, usually; 0 = the same bits.</summary>
    protected virtual double Tolerance => 0;

    protected static CancellationToken Token => TestContext.Current.CancellationToken;

    protected BarPanel Panel => BarPanel.ReadCsv(Fixture.PathOf("bars.csv"));

    protected BarSeries Bars => Panel.Select("AAPL");

    [Fact]
    public async Task A_forecast_equals_Pythons()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", Bars), Token);
        AssertSame(Expected.Of("one"), forecast);
        Assert.Equal([1, 5, 10, 20], forecast.Horizons);
        Assert.Equal([0.1, 0.5, 0.9], forecast.Quantiles);
        Assert.Equal(new DateOnly(2013, 3, 1), forecast.AsOf);
        Assert.Equal(4, forecast.TargetSessions.Count);
    }

    [Fact]
    public async Task A_panel_forecast_equals_Pythons()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", Panel), Token);
        AssertSame(Expected.Of("panel"), forecast);
        Assert.Equal(["AAPL", "IBM"], forecast.Symbols);
    }

    [Fact]
    public async Task A_symbol_without_its_last_bar_has_NaN_and_a_warning()
    {
        var bars = await BarPanel.ReadCsvAsync(Fixture.PathOf("late.csv"), Token);
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", bars), Token);
        AssertSame(Expected.Of("late"), forecast);
        Assert.True(double.IsNaN(forecast.Value("IBM", 5, 0.5)));
        Assert.True(double.IsFinite(forecast.Value("AAPL", 5, 0.5)));
        Assert.Contains(forecast.Warnings, warning => warning.Contains("IBM", StringComparison.Ordinal));
    }

    [Fact]
    public async Task A_symbol_with_an_impossible_bar_fails_alone()
    {
        var panel = Panel;
        var low = panel.Low.ToArray();
        low[^3] = -1;
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", panel with { Low = low }), Token);
        var (symbol, refusal) = Assert.Single(forecast.Refusals);
        Assert.Equal(("IBM", QuantraReason.BarsInvalid), (symbol, refusal.Reason));
        Assert.StartsWith("IBM 2013-02-27: low is -1, but a price must be positive", refusal.Message, StringComparison.Ordinal);
        var whole = await Predictor.PredictAsync(new PredictionRequest("small", panel), Token);
        Assert.Equal(whole.Value("AAPL", 5, 0.5), forecast.Value("AAPL", 5, 0.5), 1e-8);
    }

    [Theory]
    [InlineData("ensemble", "bars.csv")]
    [InlineData("ensemble_late", "late.csv")]
    public async Task An_ensembles_forecast_equals_Pythons(string expected, string bars)
    {
        var panel = await BarPanel.ReadCsvAsync(Fixture.PathOf(bars), Token);
        AssertSame(Expected.Of(expected), await Predictor.PredictAsync(new PredictionRequest("ensemble", panel), Token));
    }

    [Fact]
    public async Task Forecasts_with_covariates_equal_Pythons()
    {
        var model = await Predictor.GetModelAsync("covariates", Token);
        Assert.Equal(["short_interest", "credit_spread", "rebalance", "cap", "sector"], model.Covariates.Select(one => one.Name));
        Assert.Equal((CovariateGroup.Known, 0), (model.Covariates[2].Group, model.Covariates[2].Categories.Count));
        Assert.Equal((CovariateGroup.Static, "Hardware"), (model.Covariates[4].Group, model.Covariates[4].Categories[0]));
        var forecast = await Predictor.PredictAsync(WithCovariates(), Token);
        AssertSame(Expected.Of("covariates"), forecast);
        Assert.Contains("GOOG: cap is unknown, and the forecast is made without it", forecast.Warnings);
    }

    [Fact]
    public async Task Covariate_files_have_the_values_that_Python_reads()
    {
        string[] dated = ["short_interest.csv", "market.csv", "rebalance.csv"];
        var files = CovariateSource.ReadCsv(dated.Select(Fixture.PathOf), Fixture.PathOf("static.csv"));
        var (byHand, request) = (WithCovariates().Covariates, WithCovariates());
        var read = files.ForModel(await Predictor.GetModelAsync("covariates", Token), request.Bars!);
        Assert.Equal(byHand.FutureSessions.ToArray(), read.FutureSessions.ToArray());
        Assert.Equal(Bits(byHand.Observed), Bits(read.Observed));
        Assert.Equal(Bits(byHand.Known), Bits(read.Known));
        Assert.Equal(Bits(byHand.Numbers), Bits(read.Numbers));
        Assert.Equal(byHand.Categories["sector"], Assert.Single(read.Categories).Value);
        AssertSame(Expected.Of("covariates"), await Predictor.PredictAsync(request with { Covariates = read }, Token));

        static IEnumerable<(string, string)> Bits(IReadOnlyDictionary<string, ReadOnlyMemory<double>> values) =>
            values.Select(one => (one.Key, string.Join(' ', ExpectedResults.BitsOf(one.Value))));
    }

    [Fact]
    public async Task A_missing_covariate_is_named()
    {
        var failure = await RefusalAsync(WithCovariates() with { Covariates = Covariates.None });
        Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.CovariateMissing), (failure.Code, failure.Reason));
        Assert.Equal("short_interest", failure.Metadata["covariate"]);
    }

    [Fact]
    public async Task An_unknown_covariate_is_named()
    {
        var failure = await RefusalAsync(WithCovariates() with { Model = "small" });
        Assert.Equal(QuantraReason.UnknownCovariate, failure.Reason);
        Assert.Equal("short_interest", failure.Metadata["covariate"]);
    }

    [Fact]
    public async Task Feature_windows_give_the_forecast_of_their_bars()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", await WindowAsync("small", "window", "AAPL")), Token);
        AssertNumbers(Expected.Of("one"), "values", forecast.Values);
    }

    [Fact]
    public async Task Windows_with_a_fitted_scale_have_one_location_per_horizon()
    {
        var window = await WindowAsync("fitted", "window_fitted", "AAPL", "IBM");
        Assert.Equal(2 * 4, window.Scale.Length);
        var forecast = await Predictor.PredictAsync(new PredictionRequest("fitted", window), Token);
        AssertNumbers(Expected.Of("fitted"), "values", forecast.Values);
    }

    [Fact]
    public async Task A_location_of_the_wrong_shape_is_named()
    {
        var window = await WindowAsync("fitted", "window_fitted", "AAPL", "IBM");
        var one = await RefusalAsync(new PredictionRequest("fitted", window with { Scale = window.Scale[..2] }));
        Assert.Equal(QuantraReason.WindowShape, one.Reason);
        Assert.Contains("scale", one.Message, StringComparison.Ordinal);
        var plain = await WindowAsync("small", "window", "AAPL");
        double[] four = [.. Enumerable.Repeat(plain.Location.Span[0], 4)];
        var many = await RefusalAsync(new PredictionRequest("small", plain with { Location = four }));
        Assert.Equal(QuantraReason.WindowShape, many.Reason);
        Assert.Contains("location", many.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_forecast_has_the_models_skill()
    {
        var request = new PredictionRequest("fitted", Panel);
        var forecast = await Predictor.PredictAsync(request, Token);
        var (skill, expected) = (forecast.Skill!, Expected.Of("fitted").Of("skill"));
        Assert.Equal(expected.Text("rival"), skill.Rival);
        Assert.Equal((-0.00449, -0.02251, 0.01049, 0.9), (skill.Improvement, skill.Lower, skill.Upper, skill.Level));
        Assert.Equal((SkillVerdict.Undecided, 0), (skill.Verdict, skill.DaysShort));
        Assert.Equal(expected.Text("sentence"), skill.Sentence);
        Assert.Equal(expected.Text("line"), skill.Line);
        Assert.EndsWith(skill.Line, forecast.ToString(), StringComparison.Ordinal);
        Assert.Null((await Predictor.PredictAsync(new PredictionRequest("small", Bars), Token)).Skill);
    }

    [Fact]
    public async Task Percentages_are_simple_returns()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", Panel), Token);
        var (shown, price) = (forecast.SimpleReturn("IBM", 20, 0.9), forecast.Price("IBM", 20, 0.9));
        Assert.Equal(price / forecast.AnchorPrice!.Value.Span[1], 1 + shown, 12);
        Assert.NotEqual(forecast.Value("IBM", 20, 0.9), shown, 4);
        Assert.Equal((forecast.AsOf, "the last close"), (forecast.BaseSession, forecast.CountedFrom));
    }

    [Fact]
    public async Task With_a_lag_the_forecast_has_no_prices_and_names_the_base_close()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("delayed", Panel), Token);
        AssertNumbers(Expected.Of("delayed"), "returns", forecast.Returns!.Value);
        Assert.Null(forecast.Prices);
        Assert.Equal((1, new DateOnly(2013, 3, 4)), (forecast.Lag, forecast.BaseSession));
        Assert.Equal("the close of 2013-03-04, 1 session after the last bar", forecast.CountedFrom);
        var text = forecast.ToString();
        Assert.Contains("returns count from the close of 2013-03-04, 1 session after the last bar", text, StringComparison.Ordinal);
        var percent = forecast.SimpleReturn("AAPL", 20, 0.9).ToString("+0.00 %;-0.00 %", CultureInfo.InvariantCulture);
        Assert.Contains(percent, text, StringComparison.Ordinal);
        Assert.EndsWith("skill: unknown, the model's card has no baseline", text, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_model_without_ranking_returns_no_ranks()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", Panel), Token);
        Assert.Null(forecast.Scores);
        Assert.Null(forecast.Ranks);
        Assert.Empty(forecast.UniverseHash);
        Assert.Equal((0, true), (forecast.Rank("IBM", 5), double.IsNaN(forecast.Score("IBM", 5))));
        Assert.DoesNotContain("rank", forecast.ToString(), StringComparison.Ordinal);
    }

    [Fact]
    public async Task Scores_and_ranks_equal_Pythons()
    {
        var (expected, forecast) = (Expected.Of("graph"), await Predictor.PredictAsync(new PredictionRequest("graph", Panel), Token));
        AssertSame(expected, forecast);
        AssertNumbers(expected, "scores", forecast.Scores!.Value, size: 1);
        Assert.Equal(expected.Array<int>("ranks"), forecast.Ranks!.Value.ToArray());
        Assert.Equal(expected.Text("universe_hash"), forecast.UniverseHash);
        Assert.Equal(16, forecast.UniverseHash.Length);
        var better = forecast.Score("AAPL", 5) > forecast.Score("IBM", 5) ? "AAPL" : "IBM";
        Assert.Equal(1, forecast.Rank(better, 5));
        Assert.Equal(3, forecast.Rank("AAPL", 20) + forecast.Rank("IBM", 20));
        Assert.Contains(forecast.Table(), row => (row.Symbol, row.Horizon, row.Rank) == (better, 5, 1));
        Assert.Contains("rank", forecast.ToString(), StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_symbol_without_its_last_bar_has_no_rank()
    {
        var bars = await BarPanel.ReadCsvAsync(Fixture.PathOf("late.csv"), Token);
        var forecast = await Predictor.PredictAsync(new PredictionRequest("graph", bars), Token);
        Assert.Equal(Expected.Of("graph_late").Array<int>("ranks"), forecast.Ranks!.Value.ToArray());
        Assert.Equal((0, 1), (forecast.Rank("IBM", 5), forecast.Rank("AAPL", 5)));
        Assert.True(double.IsNaN(forecast.Score("IBM", 5)));
        Assert.NotEqual(Expected.Of("graph").Text("universe_hash"), forecast.UniverseHash);
    }

    [Fact]
    public async Task A_graph_models_explanation_has_a_row_of_neighbours()
    {
        var attribution = await Predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("graph", Panel), 5), Token);
        AssertNumbers(Expected.Of("reasons_graph"), "per_row", attribution.PerRow);
        Assert.Equal(RowKind.Neighbours, attribution.RowKinds[^1]);
        Assert.NotEqual(0, attribution.Table("AAPL").Single(row => row.Kind == RowKind.Neighbours).Value);
        Assert.Empty(attribution.Internals);
    }

    [Fact]
    public async Task Explaining_some_symbols_equals_explaining_all()
    {
        var instance = new PredictionRequest("graph", Panel);
        var whole = await Predictor.ExplainAsync(new ExplanationRequest(instance, 5), Token);
        var one = await Predictor.ExplainAsync(new ExplanationRequest(instance, 5) { Symbols = ["IBM"] }, Token);
        Assert.Equal(["IBM"], one.Symbols);
        Assert.Equal(whole.Table("IBM").Select(row => (row.Name, Math.Round(row.Value, 7))), one.Table("IBM").Select(row => (row.Name, Math.Round(row.Value, 7))));
        var request = new ExplanationRequest(instance, 5) { Symbols = ["X"] };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.ExplainAsync(request, Token));
        Assert.Equal(QuantraReason.InvalidInput, failure.Reason);
    }

    [Theory]
    [MemberData(nameof(BadBars))]
    public async Task Invalid_bars_fail_only_their_own_request(string what, string reason)
    {
        PredictionRequest[] requests = [new("small", Spoiled[what](Bars)), new("small", Bars)];
        var results = await Predictor.PredictManyAsync(requests, Token);
        Assert.Null(results[0].Forecast);
        Assert.Equal(reason, results[0].Error!.Reason);
        Assert.NotEmpty(results[0].Error!.Message);
        AssertSame(Expected.Of("one"), results[1].GetForecast());
    }

    [Theory]
    [InlineData("a bar with some fields NaN", "open", "nan")]
    [InlineData("an infinite price", "close", "inf")]
    [InlineData("a negative price", "low", "-1.0")]
    public async Task An_invalid_cell_is_named(string what, string field, string value)
    {
        var failure = await RefusalAsync(new PredictionRequest("small", Spoiled[what](Bars)));
        var facts = new Dictionary<string, string> { ["symbol"] = "AAPL", ["date"] = "2013-03-01", ["field"] = field, ["value"] = value };
        Assert.Equal(facts, failure.Metadata);
        Assert.StartsWith($"AAPL 2013-03-01: {field} is ", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_symbol_without_a_bar_before_the_last_has_NaN_and_a_warning()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", Emptied(Panel, 200, 399)), Token);
        Assert.True(double.IsNaN(forecast.Value("IBM", 5, 0.5)));
        Assert.True(double.IsFinite(forecast.Value("AAPL", 5, 0.5)));
        Assert.StartsWith("no forecast of IBM: ", Assert.Single(forecast.Warnings), StringComparison.Ordinal);
        var (symbol, refusal) = Assert.Single(forecast.Refusals);
        Assert.Equal(("IBM", QuantraReason.TooFewBars), (symbol, refusal.Reason));
        Assert.Equal(("1", "30"), (refusal.Metadata["have"], refusal.Metadata["need"]));
    }

    [Fact]
    public async Task Extreme_prices_fail_only_their_own_request()
    {
        var panel = Panel;
        var (bars, wild) = (panel.Select("IBM"), Swinging(panel.Sessions.Length));
        var bad = new PredictionRequest("small", bars with { Open = wild, High = wild, Low = wild, Close = wild, AdjustedClose = wild });
        var results = await Predictor.PredictManyAsync([new("small", Bars), bad, new("small", Bars)], Token);
        Assert.Equal([null, QuantraReason.BarSuspect, null], results.Select(result => result.Error?.Reason));
        AssertNear(Expected.Of("one").Array<double>("values"), results[0].GetForecast());
        var mixed = panel with
        {
            Open = SecondRow(panel.Open, wild),
            High = SecondRow(panel.High, wild),
            Low = SecondRow(panel.Low, wild),
            Close = SecondRow(panel.Close, wild),
            AdjustedClose = SecondRow(panel.AdjustedClose, wild),
        };
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", mixed), Token);
        Assert.Equal("IBM", Assert.Single(forecast.Refusals).Key);
        AssertNear(Expected.Of("panel").Array<double>("values")[..12], forecast);

        static double[] Swinging(int sessions) => [.. Enumerable.Range(0, sessions).Select(day => day % 2 == 0 ? 1e-200 : 1e200)];
        static double[] SecondRow(ReadOnlyMemory<double> column, double[] row) => [.. column[..row.Length].Span, .. row];
    }

    [Fact]
    public async Task A_panel_without_a_usable_symbol_is_rejected()
    {
        var panel = Emptied(Emptied(Panel, 199, 200), 399, 400);
        var failure = await RefusalAsync(new PredictionRequest("small", panel));
        Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.NoUsableSymbol), (failure.Code, failure.Reason));
        Assert.Contains("AAPL", failure.Message, StringComparison.Ordinal);
        Assert.Contains("IBM", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task The_other_models_are_served_despite_a_damaged_artifact()
    {
        Assert.Equal(Models, (await Predictor.ListModelsAsync(Token)).Select(model => model.Name));
        Assert.Equal(QuantraReason.ModelNotFound, (await RefusalAsync(new PredictionRequest("cut", Bars))).Reason);
    }

    [Fact]
    public async Task Too_few_bars_are_rejected_with_the_required_number()
    {
        var failure = await RefusalAsync(new PredictionRequest("small", Bars.Last(20)));
        Assert.Equal(QuantraStatus.InvalidArgument, failure.Code);
        Assert.Equal("20", failure.Metadata["have"]);
        Assert.Equal("30", failure.Metadata["need"]);
        Assert.Contains($"ideally {Expected.BarsNeeded} sessions", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("large", QuantraReason.ModelNotFound)]
    [InlineData("../../x", QuantraReason.ModelNotFound)]
    [InlineData("small@7", QuantraReason.VersionNotFound)]
    [InlineData("small@canary", QuantraReason.VersionNotFound)]
    public async Task An_unknown_model_is_rejected(string model, string reason)
    {
        var existing = reason == QuantraReason.ModelNotFound ? $"[{string.Join(", ", Models.Select(name => $"'{name}'"))}]" : "[1]";
        Assert.Equal(reason, (await RefusalAsync(new PredictionRequest(model, Bars))).Reason);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.GetModelAsync(model, Token));
        Assert.Equal((QuantraStatus.NotFound, reason), (failure.Code, failure.Reason));
        Assert.Contains(existing, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_window_of_another_shape_is_rejected()
    {
        var window = await WindowAsync("small", "window", "AAPL");
        var shorter = window with
        {
            EncoderLength = window.EncoderLength - 1,
            Observed = window.Observed[(window.Observed.Length / window.EncoderLength)..],
            Known = window.Known[(window.Known.Length / (window.EncoderLength + window.FutureLength))..],
            Mask = default,
        };
        Assert.Equal(QuantraReason.WindowShape, (await RefusalAsync(new PredictionRequest("small", shorter))).Reason);
        var ragged = window with { Observed = window.Observed[1..] };
        Assert.Equal(QuantraReason.MalformedRequest, (await RefusalAsync(new PredictionRequest("small", ragged))).Reason);
    }

    [Fact]
    public async Task An_unknown_feature_is_named()
    {
        var window = await WindowAsync("small", "window", "AAPL") with { Features = ["rsi"] };
        var error = await RefusalAsync(new PredictionRequest("small", window));
        Assert.Equal(QuantraReason.UnknownFeature, error.Reason);
        Assert.Contains("return_1", error.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_window_of_another_schema_is_rejected()
    {
        var window = await WindowAsync("small", "window", "AAPL") with { SchemaHash = "other" };
        Assert.Equal(QuantraReason.FeatureMismatch, (await RefusalAsync(new PredictionRequest("small", window))).Reason);
    }

    [Fact]
    public async Task A_missing_session_can_be_masked_or_ignored()
    {
        var bars = WithoutSecondToLast(Bars);
        foreach (var policy in new[] { GapPolicy.Mask, GapPolicy.Ignore })
        {
            var forecast = await Predictor.PredictAsync(new PredictionRequest("small", bars) { GapPolicy = policy }, Token);
            Assert.True(double.IsFinite(forecast.Value("AAPL", 5, 0.5)));
        }
    }

    [Fact]
    public async Task An_invalid_request_does_not_fail_the_others()
    {
        var results = await Predictor.PredictManyAsync(
            [
                new PredictionRequest("small", Bars) { RequestId = "first" },
                new PredictionRequest("small@1", Bars.Last(20)) { RequestId = "bad" },
                new PredictionRequest("small@1", Panel) { RequestId = "last" },
            ],
            Token);
        Assert.Equal(["first", "bad", "last"], results.Select(result => result.RequestId));
        AssertNear(Expected.Of("one").Array<double>("values"), results[0].GetForecast());
        Assert.Equal(QuantraReason.TooFewBars, results[1].Error!.Reason);
        Assert.Null(results[1].Forecast);
        Assert.Equal(2, results[2].GetForecast().Symbols.Count);
    }

    [Fact]
    public async Task An_unknown_model_is_the_error_of_its_own_requests()
    {
        var results = await Predictor.PredictManyAsync(
            [new PredictionRequest("large", Bars) { RequestId = "lost" }, new PredictionRequest("small", Bars)],
            Token);
        Assert.Equal(("lost", QuantraReason.ModelNotFound), (results[0].RequestId, results[0].Error!.Reason));
        AssertSame(Expected.Of("one"), results[1].GetForecast());
    }

    [Fact]
    public async Task A_call_fails_if_no_model_answers()
    {
        PredictionRequest[] requests = [new("large", Bars), new("larger", Bars)];
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.PredictManyAsync(requests, Token));
        Assert.Equal(QuantraReason.ModelNotFound, failure.Reason);
    }

    [Fact]
    public async Task An_explanation_with_covariates_equals_Pythons()
    {
        var attribution = await Predictor.ExplainAsync(new ExplanationRequest(WithCovariates(), 5), Token);
        AssertNumbers(Expected.Of("reasons_covariates"), "per_row", attribution.PerRow);
        Assert.Contains(("sector", RowKind.Static), attribution.RowNames.Zip(attribution.RowKinds));
    }

    [Fact]
    public async Task An_explanation_has_the_models_skill()
    {
        var request = new PredictionRequest("fitted", Panel);
        var attribution = await Predictor.ExplainAsync(new ExplanationRequest(request, 5), Token);
        Assert.Equal((await Predictor.PredictAsync(request, Token)).Skill, attribution.Skill);
        Assert.NotNull(attribution.Skill);
    }

    [Fact]
    public async Task Importance_equals_Pythons()
    {
        var request = new ExplanationRequest(new PredictionRequest("small", Bars), 5) { Detail = ExplanationDetail.Cells };
        var attribution = await Predictor.ExplainAsync(request, Token);
        var expected = Expected.Of("reasons_of_one");
        Assert.Equal(expected.Texts("row_names"), attribution.RowNames);
        Assert.Equal(expected.Texts("row_kinds"), attribution.RowKinds.Select(kind => kind.ToString().ToLowerInvariant()));
        AssertNumbers(expected, "per_row", attribution.PerRow);
        AssertNumbers(expected, "per_time", attribution.PerTime!.Value);
        AssertNumbers(expected, "cells", attribution.Cells!.Value);
        AssertNumbers(expected, "prediction", attribution.Prediction);
        Assert.Equal(expected.Array<int>("nodes"), attribution.Nodes);
        Assert.Equal((5, 0.5, "integrated-gradients"), (attribution.Horizon, attribution.Quantile, attribution.Method));
        Assert.Equal(60, attribution.Sessions.Count);
        Assert.Empty(attribution.Internals);
    }

    [Fact]
    public async Task An_explanation_of_an_ensemble_equals_Pythons()
    {
        var attribution = await Predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("ensemble", Panel), 5), Token);
        var expected = Expected.Of("reasons_ensemble");
        Assert.Equal(expected.Texts("row_names"), attribution.RowNames);
        AssertNumbers(expected, "per_row", attribution.PerRow);
        AssertNumbers(expected, "prediction", attribution.Prediction);
        AssertNumbers(expected, "baseline_prediction", attribution.BaselinePrediction);
        Assert.Equal(expected.Array<int>("nodes"), attribution.Nodes);
        Assert.Equal(expected.Texts("warnings"), attribution.Warnings);
        var methods = (await Predictor.GetModelAsync("ensemble", Token)).ExplainMethods;
        Assert.Equal(["integrated-gradients", "shapley", "occlusion"], methods);
    }

    [Fact]
    public async Task Shapley_values_equal_Pythons()
    {
        var request = new ExplanationRequest(new PredictionRequest("ensemble", Panel), 5) { Method = "shapley" };
        var (attribution, expected) = (await Predictor.ExplainAsync(request, Token), Expected.Of("reasons_shapley"));
        Assert.Equal(("shapley", expected.Text("baseline")), (attribution.Method, attribution.Baseline));
        Assert.Equal(expected.Texts("row_names"), attribution.RowNames);
        AssertNumbers(expected, "per_row", attribution.PerRow);
    }

    [Theory]
    [InlineData("tree-shap")]
    [InlineData("guessing")]
    public async Task A_method_that_the_model_lacks_is_rejected(string method)
    {
        var request = new ExplanationRequest(new PredictionRequest("small", Bars), 5) { Method = method };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.ExplainAsync(request, Token));
        Assert.Equal((QuantraStatus.Unimplemented, QuantraReason.ExplainUnsupported), (failure.Code, failure.Reason));
        Assert.Contains($"'{method}'", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Several_numbers_are_explained_in_one_call()
    {
        var instance = new PredictionRequest("small", Bars);
        var attributions = await Predictor.ExplainManyAsync(new ManyExplanationsRequest(instance, [new(5), new(20, 0.9)]), Token);
        Assert.Equal([(5, 0.5), (20, 0.9)], attributions.Select(one => (one.Horizon, one.Quantile)));
        Assert.Equal(Expected.Of("reasons_of_one").Array<double>("prediction")[0], attributions[0].Prediction.Span[0], 1e-7);
        var medians = await Predictor.ExplainManyAsync(new ManyExplanationsRequest(instance, []), Token);
        Assert.Equal([(1, 0.5), (5, 0.5), (10, 0.5), (20, 0.5)], medians.Select(one => (one.Horizon, one.Quantile)));
    }

    [Fact]
    public async Task Network_internals_equal_Pythons()
    {
        var attribution = await Predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("tft", Panel), 5), Token);
        var expected = Expected.Of("reasons_tft").All("internals").ToList();
        Assert.Equal(["selection of past variables", "selection of future variables", "attention"], attribution.Internals.Select(one => one.Name));
        Assert.Equal(expected.Select(one => one.Text("name")), attribution.Internals.Select(one => one.Name));
        Assert.Equal(expected.Select(one => one.Texts("labels")), attribution.Internals.Select(one => one.Labels));
        foreach (var (one, actual) in expected.Zip(attribution.Internals))
            AssertNumbers(one, "values", actual.Values);
        var shares = attribution.Shares("IBM", "attention");
        Assert.Equal(1, shares.Sum(share => share.Value), 6);
        Assert.Equal([InternalAxis.Inputs, InternalAxis.Inputs, InternalAxis.Sessions], attribution.Internals.Select(one => one.Axis));
        var labels = shares.Select(share => share.Label).ToHashSet();
        string[] some = ["59 sessions before the last", "1 session before the last", "last session", "5 sessions after the last"];
        Assert.All(some, label => Assert.Contains(label, labels));
        Assert.Contains("return_1", attribution.Shares("IBM", "selection of past variables").Select(share => share.Label));
        Assert.Equal(shares.OrderByDescending(share => share.Value), shares);
        Assert.Throws<ArgumentException>(() => attribution.Shares("IBM", "mood"));
    }

    [Fact]
    public async Task Importance_without_detail_has_only_inputs()
    {
        var attribution = await Predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("small", Bars), 1, 0.9), Token);
        Assert.Null(attribution.PerTime);
        Assert.Null(attribution.Cells);
        var sizes = attribution.Table("AAPL").Select(row => Math.Abs(row.Value)).ToArray();
        Assert.Equal(sizes.OrderDescending(), sizes);
    }

    [Theory]
    [InlineData(3, 0.5, QuantraReason.UnknownHorizon, "[1, 5, 10, 20]")]
    [InlineData(5, 0.4, QuantraReason.UnknownQuantile, "[0.1, 0.5, 0.9]")]
    public async Task An_unknown_target_is_rejected(int horizon, double quantile, string reason, string existing)
    {
        var request = new ExplanationRequest(new PredictionRequest("small", Bars), horizon, quantile);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.ExplainAsync(request, Token));
        Assert.Equal(reason, failure.Reason);
        Assert.Contains(existing, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_tolerance_of_1_is_rejected()
    {
        var request = new ExplanationRequest(new PredictionRequest("small", Bars), 5) { Tolerance = 1 };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.ExplainAsync(request, Token));
        Assert.Equal(QuantraReason.MalformedRequest, failure.Reason);
    }

    [Fact]
    public async Task No_requests_give_no_results() => Assert.Empty(await Predictor.PredictManyAsync([], Token));

    [Fact]
    public async Task Parallel_calls_do_not_mix()
    {
        var requests = Enumerable.Range(0, 100).Select(i => new PredictionRequest("small", i % 2 == 0 ? Bars : Panel.Select("IBM")));
        var forecasts = await Task.WhenAll(requests.Select(request => Predictor.PredictAsync(request, Token)));
        var expected = Expected.Of("one").Array<double>("values");
        Assert.All(forecasts.Where((_, i) => i % 2 == 0), forecast => AssertNear(expected, forecast));
        Assert.All(forecasts.Where((_, i) => i % 2 == 1), forecast => Assert.Equal(["IBM"], forecast.Symbols));
    }

    protected PredictionRequest WithCovariates()
    {
        var sent = Expected.Of("sent_covariates");
        return new PredictionRequest("covariates", BarPanel.ReadCsv(Fixture.PathOf("covariate_bars.csv")))
        {
            Covariates = new Covariates
            {
                Observed = new Dictionary<string, ReadOnlyMemory<double>>
                {
                    ["short_interest"] = sent.Array<double>("short_interest"),
                    ["credit_spread"] = sent.Array<double>("credit_spread"),
                },
                Known = new Dictionary<string, ReadOnlyMemory<double>> { ["rebalance"] = sent.Array<double>("rebalance") },
                FutureSessions = sent.Days("future_sessions"),
                Numbers = new Dictionary<string, ReadOnlyMemory<double>> { ["cap"] = sent.Array<double>("cap") },
                Categories = new Dictionary<string, IReadOnlyList<string>> { ["sector"] = sent.Texts("sector") },
            },
        };
    }

    private static T[] With<T>(ReadOnlyMemory<T> values, int index, T value)
    {
        var copy = values.ToArray();
        copy[index] = value;
        return copy;
    }

    /// <summary>Returns the panel without the bars of these cells.</summary>
    private static BarPanel Emptied(BarPanel panel, int from, int to)
    {
        return panel with
        {
            Open = Without(panel.Open),
            High = Without(panel.High),
            Low = Without(panel.Low),
            Close = Without(panel.Close),
            Volume = Without(panel.Volume),
            AdjustedClose = Without(panel.AdjustedClose),
        };

        double[] Without(ReadOnlyMemory<double> column)
        {
            var copy = column.ToArray();
            copy.AsSpan(from, to - from).Fill(double.NaN);
            return copy;
        }
    }

    private static DateOnly[] Shifted(ReadOnlyMemory<DateOnly> sessions, int days) =>
        [.. sessions.ToArray().Select(day => day.AddDays(days))];

    private static BarSeries WithoutSecondToLast(BarSeries bars)
    {
        return bars with
        {
            Sessions = Without(bars.Sessions),
            Open = Without(bars.Open),
            High = Without(bars.High),
            Low = Without(bars.Low),
            Close = Without(bars.Close),
            Volume = Without(bars.Volume),
            AdjustedClose = Without(bars.AdjustedClose),
        };

        static T[] Without<T>(ReadOnlyMemory<T> column) => [.. column.ToArray().Where((_, index) => index != Last - 1)];
    }

    protected void AssertSame(ExpectedResults expected, Forecast forecast)
    {
        ArgumentNullException.ThrowIfNull(expected);
        ArgumentNullException.ThrowIfNull(forecast);
        Assert.Equal(expected.Texts("symbols"), forecast.Symbols);
        AssertNumbers(expected, "values", forecast.Values);
        AssertNumbers(expected, "returns", forecast.Returns!.Value);
        AssertNumbers(expected, "prices", forecast.Prices!.Value);
        AssertNumbers(expected, "anchor_price", forecast.AnchorPrice!.Value);
        Assert.Equal(expected.Texts("warnings"), forecast.Warnings);
        Assert.Equal(expected.Text("weights_hash"), forecast.WeightsHash);
    }

    /// <summary>Compares numbers with Python's within <see cref="Tolerance"/> of the larger of a number and a size.</summary>
    protected void AssertNumbers(ExpectedResults expected, string name, ReadOnlyMemory<double> actual, double size = 0.1)
    {
        ArgumentNullException.ThrowIfNull(expected);
        if (Tolerance == 0)
        {
            Assert.Equal(expected.Bits(name), ExpectedResults.BitsOf(actual));
            return;
        }

        var numbers = expected.Array<double>(name);
        Assert.Equal(numbers.Length, actual.Length);
        foreach (var (one, other) in numbers.Zip(actual.ToArray()))
            Assert.True(one.Equals(other) || Math.Abs(one - other) <= Tolerance * Math.Max(Math.Abs(one), size), $"{name} has {other}, expected {one}");
    }

    /// <summary>Compares with a tolerance: the last bits may differ between batches of different size.</summary>
    private static void AssertNear(double[] expected, Forecast forecast) =>
        Assert.All(expected.Zip(forecast.Values[..expected.Length].ToArray()), pair => Assert.Equal(pair.First, pair.Second, 1e-6));

    private async Task<FeatureWindow> WindowAsync(string name, string expected, params string[] symbols)
    {
        var (window, model) = (Expected.Of(expected), await Predictor.GetModelAsync(name, Token));
        return new FeatureWindow
        {
            Symbols = symbols,
            EncoderLength = model.EncoderLength,
            FutureLength = model.FutureLength,
            Observed = window.Array<float>("observed"),
            Known = window.Array<float>("known"),
            Static = window.Array<float>("static"),
            Mask = window.Array<bool>("mask"),
            Location = window.Array<double>("location"),
            Scale = window.Array<double>("scale"),
            SchemaHash = window.Text("schema_hash"),
        };
    }

    protected Task<QuantraException> RefusalAsync(PredictionRequest request) =>
        Assert.ThrowsAsync<QuantraException>(() => Predictor.PredictAsync(request, Token));
}
