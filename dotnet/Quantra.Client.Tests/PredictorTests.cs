using System.Globalization;
using Grpc.Core;

namespace Quantra.Client.Tests;

/// <summary>Tests of every predictor, over gRPC and inside this process.</summary>
public abstract class PredictorTests
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
        ["dates beyond the calendar"] = bars => bars with { Sessions = Shifted(bars.Sessions, 365 * 20) },
        ["no symbol"] = bars => bars with { Symbol = "" },
    };

    private readonly IStockPredictor _predictor;
    private readonly ExpectedResults _expected;

    protected PredictorTests(PredictorFixture fixture, IStockPredictor predictor)
    {
        ArgumentNullException.ThrowIfNull(fixture);
        (Fixture, _predictor, _expected) = (fixture, predictor, fixture.Expected);
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
        { "no symbol", QuantraReason.BarsInvalid },
    };

    protected PredictorFixture Fixture { get; }

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private BarPanel Panel => BarPanel.ReadCsv(Fixture.PathOf("bars.csv"));

    private BarSeries Bars => Panel.Select("AAPL");

    protected abstract Task<IStockPredictor> OpenAsync(TimeSpan timeout, TimeSpan? graceTime = null);

    /// <summary>Opens the same predictor with another timeout.</summary>
    protected abstract IStockPredictor WithTimeout(IStockPredictor predictor, TimeSpan timeout);

    [Fact]
    public async Task A_forecast_equals_Pythons_to_the_last_bit()
    {
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", Bars), Token);
        AssertSame(_expected.Of("one"), forecast);
        Assert.Equal(_expected.Of("one").Text("forecast_id"), forecast.ForecastId);
        Assert.Equal([1, 5, 10, 20], forecast.Horizons);
        Assert.Equal([0.1, 0.5, 0.9], forecast.Quantiles);
        Assert.Equal(new DateOnly(2013, 3, 1), forecast.AsOf);
        Assert.Equal(4, forecast.TargetSessions.Count);
    }

    [Fact]
    public async Task A_panel_forecast_equals_Pythons_to_the_last_bit()
    {
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", Panel), Token);
        AssertSame(_expected.Of("panel"), forecast);
        Assert.Equal(["AAPL", "IBM"], forecast.Symbols);
    }

    [Fact]
    public async Task A_symbol_without_its_last_bar_has_NaN_and_a_warning()
    {
        var bars = await BarPanel.ReadCsvAsync(Fixture.PathOf("late.csv"), Token);
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", bars), Token);
        AssertSame(_expected.Of("late"), forecast);
        Assert.True(double.IsNaN(forecast.Value("IBM", 5, 0.5)));
        Assert.True(double.IsFinite(forecast.Value("AAPL", 5, 0.5)));
        Assert.Contains(forecast.Warnings, warning => warning.Contains("IBM", StringComparison.Ordinal));
    }

    [Fact]
    public async Task Forecasts_with_covariates_equal_Pythons()
    {
        var model = await _predictor.GetModelAsync("covariates", Token);
        Assert.Equal(["short_interest", "credit_spread", "rebalance", "cap", "sector"], model.Covariates.Select(one => one.Name));
        Assert.Equal((CovariateGroup.Known, 0), (model.Covariates[2].Group, model.Covariates[2].Categories.Count));
        Assert.Equal((CovariateGroup.Static, "Hardware"), (model.Covariates[4].Group, model.Covariates[4].Categories[0]));
        var forecast = await _predictor.PredictAsync(WithCovariates(), Token);
        AssertSame(_expected.Of("covariates"), forecast);
        Assert.Contains("GOOG: cap is unknown, and the forecast is made without it", forecast.Warnings);
        var attribution = await _predictor.ExplainAsync(new ExplanationRequest(WithCovariates(), 5), Token);
        Assert.Equal(_expected.Of("reasons_covariates").Bits("per_row"), ExpectedResults.BitsOf(attribution.PerRow));
        Assert.Contains(("sector", RowKind.Static), attribution.RowNames.Zip(attribution.RowKinds));
    }

    [Fact]
    public async Task Covariate_files_have_the_values_that_Python_reads()
    {
        string[] dated = ["short_interest.csv", "market.csv", "rebalance.csv"];
        var files = CovariateSource.ReadCsv(dated.Select(Fixture.PathOf), Fixture.PathOf("static.csv"));
        var (byHand, request) = (WithCovariates().Covariates, WithCovariates());
        var read = files.ForModel(await _predictor.GetModelAsync("covariates", Token), request.Bars!);
        Assert.Equal(byHand.FutureSessions.ToArray(), read.FutureSessions.ToArray());
        Assert.Equal(Bits(byHand.Observed), Bits(read.Observed));
        Assert.Equal(Bits(byHand.Known), Bits(read.Known));
        Assert.Equal(Bits(byHand.Numbers), Bits(read.Numbers));
        Assert.Equal(byHand.Categories["sector"], Assert.Single(read.Categories).Value);
        AssertSame(_expected.Of("covariates"), await _predictor.PredictAsync(request with { Covariates = read }, Token));

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
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", await WindowAsync("small", "window", "AAPL")), Token);
        Assert.Equal(_expected.Of("one").Bits("values"), ExpectedResults.BitsOf(forecast.Values));
    }

    [Fact]
    public async Task Windows_with_a_fitted_scale_have_one_location_per_horizon()
    {
        var window = await WindowAsync("fitted", "window_fitted", "AAPL", "IBM");
        Assert.Equal(2 * 4, window.Scale.Length);
        var forecast = await _predictor.PredictAsync(new PredictionRequest("fitted", window), Token);
        Assert.Equal(_expected.Of("fitted").Bits("values"), ExpectedResults.BitsOf(forecast.Values));
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
    public async Task Every_result_has_the_models_skill()
    {
        var request = new PredictionRequest("fitted", Panel);
        var forecast = await _predictor.PredictAsync(request, Token);
        var (skill, expected) = (forecast.Skill!, _expected.Of("fitted").Of("skill"));
        Assert.Equal(expected.Text("rival"), skill.Rival);
        Assert.Equal((-0.00449, -0.02251, 0.01049, 0.9), (skill.Improvement, skill.Lower, skill.Upper, skill.Level));
        Assert.Equal((SkillVerdict.Undecided, 0), (skill.Verdict, skill.DaysShort));
        Assert.Equal(expected.Text("sentence"), skill.Sentence);
        Assert.Equal(expected.Text("line"), skill.Line);
        Assert.EndsWith(skill.Line, forecast.ToString(), StringComparison.Ordinal);
        Assert.Equal(skill, (await _predictor.ExplainAsync(new ExplanationRequest(request, 5), Token)).Skill);
        Assert.Null((await _predictor.PredictAsync(new PredictionRequest("small", Bars), Token)).Skill);
    }

    [Fact]
    public async Task Percentages_are_simple_returns()
    {
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", Panel), Token);
        var (shown, price) = (forecast.SimpleReturn("IBM", 20, 0.9), forecast.Price("IBM", 20, 0.9));
        Assert.Equal(price / forecast.AnchorPrice!.Value.Span[1], 1 + shown, 12);
        Assert.NotEqual(forecast.Value("IBM", 20, 0.9), shown, 4);
        Assert.Equal((forecast.AsOf, "the last close"), (forecast.BaseSession, forecast.CountedFrom));
    }

    [Fact]
    public async Task With_a_lag_the_forecast_has_no_prices_and_names_the_base_close()
    {
        var forecast = await _predictor.PredictAsync(new PredictionRequest("delayed", Panel), Token);
        Assert.Equal(_expected.Of("delayed").Bits("returns"), ExpectedResults.BitsOf(forecast.Returns!.Value));
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
    public async Task A_symbol_without_a_forecast_has_a_reason()
    {
        var bars = await BarPanel.ReadCsvAsync(Fixture.PathOf("late.csv"), Token);
        var forecast = await _predictor.PredictAsync(new PredictionRequest("fitted", bars), Token);
        var expected = Assert.Single(_expected.Of("fitted_late").All("refusals"));
        var (symbol, refusal) = Assert.Single(forecast.Refusals);
        Assert.Equal((expected.Text("symbol"), expected.Text("message")), (symbol, refusal.Message));
        Assert.Equal(QuantraReason.NoUsableSymbol, refusal.Reason);
    }

    [Fact]
    public async Task Importance_equals_Pythons_to_the_last_bit()
    {
        var request = new ExplanationRequest(new PredictionRequest("small", Bars), 5) { Detail = ExplanationDetail.Cells };
        var attribution = await _predictor.ExplainAsync(request, Token);
        var expected = _expected.Of("reasons_of_one");
        Assert.Equal(expected.Texts("row_names"), attribution.RowNames);
        Assert.Equal(expected.Texts("row_kinds"), attribution.RowKinds.Select(kind => kind.ToString().ToLowerInvariant()));
        Assert.Equal(expected.Bits("per_row"), ExpectedResults.BitsOf(attribution.PerRow));
        Assert.Equal(expected.Bits("per_time"), ExpectedResults.BitsOf(attribution.PerTime!.Value));
        Assert.Equal(expected.Bits("cells"), ExpectedResults.BitsOf(attribution.Cells!.Value));
        Assert.Equal(expected.Bits("prediction"), ExpectedResults.BitsOf(attribution.Prediction));
        Assert.Equal(expected.Array<int>("nodes"), attribution.Nodes);
        Assert.Equal((5, 0.5, "integrated-gradients"), (attribution.Horizon, attribution.Quantile, attribution.Method));
        Assert.Equal(60, attribution.Sessions.Count);
        Assert.Empty(attribution.Internals);
    }

    [Fact]
    public async Task Scores_and_ranks_equal_Pythons()
    {
        var (expected, forecast) = (_expected.Of("graph"), await _predictor.PredictAsync(new PredictionRequest("graph", Panel), Token));
        AssertSame(expected, forecast);
        Assert.Equal(expected.Bits("scores"), ExpectedResults.BitsOf(forecast.Scores!.Value));
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
        var forecast = await _predictor.PredictAsync(new PredictionRequest("graph", bars), Token);
        Assert.Equal(_expected.Of("graph_late").Array<int>("ranks"), forecast.Ranks!.Value.ToArray());
        Assert.Equal((0, 1), (forecast.Rank("IBM", 5), forecast.Rank("AAPL", 5)));
        Assert.True(double.IsNaN(forecast.Score("IBM", 5)));
        Assert.NotEqual(_expected.Of("graph").Text("universe_hash"), forecast.UniverseHash);
    }

    [Fact]
    public async Task Data_frame_columns_equal_the_table()
    {
        var forecast = await _predictor.PredictAsync(new PredictionRequest("graph", Panel), Token);
        var (columns, rows) = (forecast.ToColumns(), forecast.Table());
        Assert.Equal(["symbol", "horizon", "quantile", "date", "value", "return", "price", "score", "rank"], columns.Keys);
        Assert.Equal(rows.Select(row => row.Symbol), columns["symbol"].Cast<string>());
        Assert.Equal(rows.Select(row => row.Horizon), columns["horizon"].Cast<int>());
        Assert.Equal(rows.Select(row => row.Quantile), columns["quantile"].Cast<double>());
        Assert.Equal(rows.Select(row => row.Session!.Value), columns["date"].Cast<DateOnly>());
        Assert.Equal(rows.Select(row => row.Value), columns["value"].Cast<double>());
        Assert.Equal(rows.Select(row => forecast.SimpleReturn(row.Symbol, row.Horizon, row.Quantile)), columns["return"].Cast<double>());
        Assert.Equal(rows.Select(row => row.Price), columns["price"].Cast<double>());
        Assert.Equal(rows.Select(row => row.Score), columns["score"].Cast<double>());
        Assert.Equal(rows.Select(row => row.Rank), columns["rank"].Cast<int>());
        var delayed = await _predictor.PredictAsync(new PredictionRequest("delayed", Panel), Token);
        Assert.Equal(["symbol", "horizon", "quantile", "date", "value", "return"], delayed.ToColumns().Keys);
    }

    [Fact]
    public async Task A_model_without_ranking_returns_no_ranks()
    {
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", Panel), Token);
        Assert.Null(forecast.Scores);
        Assert.Null(forecast.Ranks);
        Assert.Empty(forecast.UniverseHash);
        Assert.Equal((0, true), (forecast.Rank("IBM", 5), double.IsNaN(forecast.Score("IBM", 5))));
        Assert.DoesNotContain("rank", forecast.ToString(), StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_graph_models_explanation_has_a_row_of_neighbours()
    {
        var attribution = await _predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("graph", Panel), 5), Token);
        Assert.Equal(_expected.Of("reasons_graph").Bits("per_row"), ExpectedResults.BitsOf(attribution.PerRow));
        Assert.Equal(RowKind.Neighbours, attribution.RowKinds[^1]);
        Assert.NotEqual(0, attribution.Table("AAPL").Single(row => row.Kind == RowKind.Neighbours).Value);
        Assert.Empty(attribution.Internals);
    }

    [Fact]
    public async Task Explaining_some_symbols_equals_explaining_all()
    {
        var instance = new PredictionRequest("graph", Panel);
        var whole = await _predictor.ExplainAsync(new ExplanationRequest(instance, 5), Token);
        var one = await _predictor.ExplainAsync(new ExplanationRequest(instance, 5) { Symbols = ["IBM"] }, Token);
        Assert.Equal(["IBM"], one.Symbols);
        Assert.Equal(whole.Table("IBM").Select(row => (row.Name, Math.Round(row.Value, 7))), one.Table("IBM").Select(row => (row.Name, Math.Round(row.Value, 7))));
        var request = new ExplanationRequest(instance, 5) { Symbols = ["X"] };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _predictor.ExplainAsync(request, Token));
        Assert.Equal(QuantraReason.InvalidInput, failure.Reason);
    }

    [Fact]
    public async Task Several_numbers_are_explained_in_one_call()
    {
        var instance = new PredictionRequest("small", Bars);
        var attributions = await _predictor.ExplainManyAsync(new ManyExplanationsRequest(instance, [new(5), new(20, 0.9)]), Token);
        Assert.Equal([(5, 0.5), (20, 0.9)], attributions.Select(one => (one.Horizon, one.Quantile)));
        Assert.Equal(_expected.Of("reasons_of_one").Array<double>("prediction")[0], attributions[0].Prediction.Span[0], 1e-9);
        var medians = await _predictor.ExplainManyAsync(new ManyExplanationsRequest(instance, []), Token);
        Assert.Equal([(1, 0.5), (5, 0.5), (10, 0.5), (20, 0.5)], medians.Select(one => (one.Horizon, one.Quantile)));
    }

    [Fact]
    public async Task Network_internals_equal_Pythons()
    {
        var attribution = await _predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("tft", Panel), 5), Token);
        var expected = _expected.Of("reasons_tft").All("internals").ToList();
        Assert.Equal(["selection of past variables", "selection of future variables", "attention"], attribution.Internals.Select(one => one.Name));
        Assert.Equal(expected.Select(one => one.Text("name")), attribution.Internals.Select(one => one.Name));
        Assert.Equal(expected.Select(one => one.Texts("labels")), attribution.Internals.Select(one => one.Labels));
        Assert.Equal(expected.Select(one => one.Bits("values")), attribution.Internals.Select(one => ExpectedResults.BitsOf(one.Values)));
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
        var attribution = await _predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("small", Bars), 1, 0.9), Token);
        Assert.Null(attribution.PerTime);
        Assert.Null(attribution.Cells);
        var sizes = attribution.Table("AAPL").Select(row => Math.Abs(row.Value)).ToArray();
        Assert.Equal(sizes.OrderDescending(), sizes);
    }

    [Fact]
    public async Task A_model_describes_its_inputs()
    {
        var model = await _predictor.GetModelAsync("small@1", Token);
        Assert.Equal(("small", 1, "lstm"), (model.Name, model.Version, model.Kind));
        Assert.Equal(_expected.BarsNeeded, model.BarsNeeded);
        Assert.Equal(_expected.Of("window").Text("schema_hash"), model.SchemaHash);
        Assert.Equal(["integrated-gradients", "occlusion"], model.ExplainMethods);
        Assert.NotEmpty(model.ObservedFeatures[0].Expression);
        Assert.Equal(["covariates", "delayed", "fitted", "graph", "small", "tft"], (await _predictor.ListModelsAsync(Token)).Select(one => one.Name));
    }

    [Theory]
    [MemberData(nameof(BadBars))]
    public async Task Invalid_bars_fail_only_their_own_request(string what, string reason)
    {
        PredictionRequest[] requests = [new("small", Spoiled[what](Bars)), new("small", Bars)];
        var results = await _predictor.PredictManyAsync(requests, Token);
        Assert.Null(results[0].Forecast);
        Assert.Equal(reason, results[0].Error!.Reason);
        Assert.NotEmpty(results[0].Error!.Message);
        AssertSame(_expected.Of("one"), results[1].GetForecast());
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
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", Emptied(Panel, 200, 399)), Token);
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
        var results = await _predictor.PredictManyAsync([new("small", Bars), bad, new("small", Bars)], Token);
        Assert.Equal([null, QuantraReason.BarSuspect, null], results.Select(result => result.Error?.Reason));
        AssertNear(_expected.Of("one").Array<double>("values"), results[0].GetForecast());
        var mixed = panel with
        {
            Open = SecondRow(panel.Open, wild),
            High = SecondRow(panel.High, wild),
            Low = SecondRow(panel.Low, wild),
            Close = SecondRow(panel.Close, wild),
            AdjustedClose = SecondRow(panel.AdjustedClose, wild),
        };
        var forecast = await _predictor.PredictAsync(new PredictionRequest("small", mixed), Token);
        Assert.Equal("IBM", Assert.Single(forecast.Refusals).Key);
        AssertNear(_expected.Of("panel").Array<double>("values")[..12], forecast);

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
        Assert.Equal(["covariates", "delayed", "fitted", "graph", "small", "tft"], (await _predictor.ListModelsAsync(Token)).Select(model => model.Name));
        Assert.Equal(QuantraReason.ModelNotFound, (await RefusalAsync(new PredictionRequest("cut", Bars))).Reason);
    }

    [Fact]
    public async Task Too_few_bars_are_rejected_with_the_required_number()
    {
        var failure = await RefusalAsync(new PredictionRequest("small", Bars.Last(20)));
        Assert.Equal(QuantraStatus.InvalidArgument, failure.Code);
        Assert.Equal("20", failure.Metadata["have"]);
        Assert.Equal("30", failure.Metadata["need"]);
        Assert.Contains($"ideally {_expected.BarsNeeded} sessions", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("large", QuantraReason.ModelNotFound, "['covariates', 'delayed', 'fitted', 'graph', 'small', 'tft']")]
    [InlineData("../../x", QuantraReason.ModelNotFound, "['covariates', 'delayed', 'fitted', 'graph', 'small', 'tft']")]
    [InlineData("small@7", QuantraReason.VersionNotFound, "[1]")]
    [InlineData("small@canary", QuantraReason.VersionNotFound, "[1]")]
    public async Task An_unknown_model_is_rejected(string model, string reason, string existing)
    {
        Assert.Equal(reason, (await RefusalAsync(new PredictionRequest(model, Bars))).Reason);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _predictor.GetModelAsync(model, Token));
        Assert.Equal((QuantraStatus.NotFound, reason), (failure.Code, failure.Reason));
        Assert.Contains(existing, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_model_name_of_a_megabyte_is_too_large()
    {
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _predictor.GetModelAsync(new string('x', 1 << 20), Token));
        Assert.Equal((QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge), (failure.Code, failure.Reason));
        Assert.True(failure.Message.Length < 1000);
    }

    [Theory]
    [InlineData(3, 0.5, QuantraReason.UnknownHorizon, "[1, 5, 10, 20]")]
    [InlineData(5, 0.4, QuantraReason.UnknownQuantile, "[0.1, 0.5, 0.9]")]
    public async Task An_unknown_target_is_rejected(int horizon, double quantile, string reason, string existing)
    {
        var request = new ExplanationRequest(new PredictionRequest("small", Bars), horizon, quantile);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _predictor.ExplainAsync(request, Token));
        Assert.Equal(reason, failure.Reason);
        Assert.Contains(existing, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_tolerance_of_1_is_rejected()
    {
        var request = new ExplanationRequest(new PredictionRequest("small", Bars), 5) { Tolerance = 1 };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _predictor.ExplainAsync(request, Token));
        Assert.Equal(QuantraReason.MalformedRequest, failure.Reason);
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
            var forecast = await _predictor.PredictAsync(new PredictionRequest("small", bars) { GapPolicy = policy }, Token);
            Assert.True(double.IsFinite(forecast.Value("AAPL", 5, 0.5)));
        }
    }

    [Fact]
    public async Task An_invalid_request_does_not_fail_the_others()
    {
        var results = await _predictor.PredictManyAsync(
            [
                new PredictionRequest("small", Bars) { RequestId = "first" },
                new PredictionRequest("small@1", Bars.Last(20)) { RequestId = "bad" },
                new PredictionRequest("small@1", Panel) { RequestId = "last" },
            ],
            Token);
        Assert.Equal(["first", "bad", "last"], results.Select(result => result.RequestId));
        AssertNear(_expected.Of("one").Array<double>("values"), results[0].GetForecast());
        Assert.Equal(QuantraReason.TooFewBars, results[1].Error!.Reason);
        Assert.Null(results[1].Forecast);
        Assert.Equal(2, results[2].GetForecast().Symbols.Count);
    }

    [Fact]
    public async Task An_unknown_model_is_the_error_of_its_own_requests()
    {
        var results = await _predictor.PredictManyAsync(
            [new PredictionRequest("large", Bars) { RequestId = "lost" }, new PredictionRequest("small", Bars)],
            Token);
        Assert.Equal(("lost", QuantraReason.ModelNotFound), (results[0].RequestId, results[0].Error!.Reason));
        AssertSame(_expected.Of("one"), results[1].GetForecast());
    }

    [Fact]
    public async Task A_call_fails_if_no_model_answers()
    {
        PredictionRequest[] requests = [new("large", Bars), new("larger", Bars)];
        var failure = await Assert.ThrowsAsync<QuantraException>(() => _predictor.PredictManyAsync(requests, Token));
        Assert.Equal(QuantraReason.ModelNotFound, failure.Reason);
    }

    [Fact]
    public async Task No_requests_give_no_results() => Assert.Empty(await _predictor.PredictManyAsync([], Token));

    [Fact]
    public async Task Parallel_calls_do_not_mix()
    {
        var requests = Enumerable.Range(0, 100).Select(i => new PredictionRequest("small", i % 2 == 0 ? Bars : Panel.Select("IBM")));
        var forecasts = await Task.WhenAll(requests.Select(request => _predictor.PredictAsync(request, Token)));
        var expected = _expected.Of("one").Array<double>("values");
        Assert.All(forecasts.Where((_, i) => i % 2 == 0), forecast => AssertNear(expected, forecast));
        Assert.All(forecasts.Where((_, i) => i % 2 == 1), forecast => Assert.Equal(["IBM"], forecast.Symbols));
    }

    [Fact]
    public async Task A_cancelled_call_throws_OperationCanceledException()
    {
        using var source = new CancellationTokenSource();
        var call = _predictor.PredictManyAsync([.. Enumerable.Repeat(new PredictionRequest("small", Panel), 200)], source.Token);
        await source.CancelAsync();
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => call);
        Assert.Equal(source.Token, failure.CancellationToken);
    }

    [Fact]
    public async Task A_deadline_that_passes_is_DEADLINE_EXCEEDED()
    {
        await using var hasty = await OpenAsync(TimeSpan.FromTicks(1));
        var request = new PredictionRequest("small", Bars);
        await TooLateAsync(() => hasty.PredictAsync(request, Token));
        await TooLateAsync(() => hasty.OpenSessionAsync(new SessionRequest("small", Bars), Token));
        await TooLateAsync(async () => await hasty.ExplainGlobalAsync(new([request], []), Token).GetAsyncEnumerator(Token).MoveNextAsync());
        var each = await hasty.PredictStreamAsync(RequestLists.Of(request, request), Token).ReadAsync(Token);
        Assert.Equal([QuantraReason.DeadlineExceeded, QuantraReason.DeadlineExceeded], each.Select(result => result.Error?.Reason));

        static async Task TooLateAsync(Func<Task> call)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(call);
            Assert.Equal((QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded), (failure.Code, failure.Reason));
        }
    }

    [Fact]
    public async Task A_view_can_have_another_timeout()
    {
        var predictor = await OpenAsync(TimeSpan.FromSeconds(30));
        var (request, hasty) = (new PredictionRequest("small", Bars), WithTimeout(predictor, TimeSpan.FromTicks(1)));
        var failure = await Assert.ThrowsAsync<QuantraException>(() => hasty.PredictAsync(request, Token));
        Assert.Equal(QuantraReason.DeadlineExceeded, failure.Reason);
        await hasty.DisposeAsync();
        var patient = WithTimeout(hasty, TimeSpan.FromSeconds(30));
        Assert.Equal(await predictor.PredictAsync(request, Token), await patient.PredictAsync(request, Token));
        Assert.Throws<ArgumentOutOfRangeException>(() => WithTimeout(predictor, TimeSpan.Zero));
        await predictor.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => patient.PredictAsync(request, Token));
    }

    [Fact]
    public async Task Disposal_waits_for_running_calls()
    {
        var predictor = await OpenAsync(TimeSpan.FromSeconds(30));
        var request = new PredictionRequest("small", Bars);
        var calls = Enumerable.Range(0, 50).Select(_ => predictor.PredictAsync(request, Token)).ToArray();
        await predictor.DisposeAsync();
        Assert.All(await Task.WhenAll(calls), forecast => Assert.Equal(calls[0].Result.ForecastId, forecast.ForecastId));
    }

    [Fact]
    public async Task Calls_that_exceed_the_grace_time_are_CANCELLED()
    {
        var predictor = await OpenAsync(TimeSpan.FromSeconds(30), TimeSpan.FromMilliseconds(1));
        var session = await predictor.OpenSessionAsync(new SessionRequest("small", Bars), Token);
        await using var stream = predictor.PredictStreamAsync(new RequestFeed(new("small", Bars)), Token).GetAsyncEnumerator(Token);
        Assert.True(await stream.MoveNextAsync());
        var many = Enumerable.Repeat(new PredictionRequest("small", Bars), 1000).ToArray();
        var (call, push) = (predictor.PredictManyAsync(many, Token), session.PushAsync(Bars.Last(1), cancellationToken: Token));
        await predictor.DisposeAsync();
        await AssertCancelledAsync(() => call);
        Assert.True(await Record.ExceptionAsync(() => push) is null or QuantraException { Reason: QuantraReason.Cancelled }); // it may have completed in time
        await AssertCancelledAsync(async () =>
        {
            while (await stream.MoveNextAsync())
                Assert.Null(stream.Current.Error);
        });

        static async Task AssertCancelledAsync(Func<Task> call)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(call);
            Assert.Equal((QuantraStatus.Cancelled, QuantraReason.Cancelled), (failure.Code, failure.Reason));
        }
    }

    [Fact]
    public async Task A_predictor_can_be_disposed_with_many_queued_calls()
    {
        var predictor = await OpenAsync(TimeSpan.FromSeconds(30), TimeSpan.FromTicks(1));
        var request = new PredictionRequest("small", Bars);
        var calls = Enumerable.Range(0, 500).Select(_ => predictor.PredictAsync(request, Token)).ToArray();
        await calls[0];
        await predictor.DisposeAsync();
        var failures = await Task.WhenAll(calls.Select(call => Record.ExceptionAsync(() => call).AsTask()));
        Assert.All(failures.OfType<Exception>(), failure => Assert.Equal(QuantraReason.Cancelled, Assert.IsType<QuantraException>(failure).Reason));
        Assert.Null(failures[0]);
    }

    [Fact]
    public async Task A_disposed_predictor_rejects_calls()
    {
        var predictor = await OpenAsync(TimeSpan.FromSeconds(30));
        await predictor.PredictAsync(new PredictionRequest("small", Bars), Token);
        await predictor.DisposeAsync();
        await predictor.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => predictor.ListModelsAsync(Token));
    }

    private PredictionRequest WithCovariates()
    {
        var sent = _expected.Of("sent_covariates");
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

    private static void AssertSame(ExpectedResults expected, Forecast forecast)
    {
        Assert.Equal(expected.Texts("symbols"), forecast.Symbols);
        Assert.Equal(expected.Bits("values"), ExpectedResults.BitsOf(forecast.Values));
        Assert.Equal(expected.Bits("returns"), ExpectedResults.BitsOf(forecast.Returns!.Value));
        Assert.Equal(expected.Bits("prices"), ExpectedResults.BitsOf(forecast.Prices!.Value));
        Assert.Equal(expected.Bits("anchor_price"), ExpectedResults.BitsOf(forecast.AnchorPrice!.Value));
        Assert.Equal(expected.Texts("warnings"), forecast.Warnings);
        Assert.Equal(expected.Text("weights_hash"), forecast.WeightsHash);
    }

    /// <summary>Compares with a tolerance: the last bits may differ between batches of different size.</summary>
    private static void AssertNear(double[] expected, Forecast forecast) =>
        Assert.All(expected.Zip(forecast.Values[..expected.Length].ToArray()), pair => Assert.Equal(pair.First, pair.Second, 1e-6));

    private async Task<FeatureWindow> WindowAsync(string name, string expected, params string[] symbols)
    {
        var (window, model) = (_expected.Of(expected), await _predictor.GetModelAsync(name, Token));
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

    private Task<QuantraException> RefusalAsync(PredictionRequest request) =>
        Assert.ThrowsAsync<QuantraException>(() => _predictor.PredictAsync(request, Token));
}
