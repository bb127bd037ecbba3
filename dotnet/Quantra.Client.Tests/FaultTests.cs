namespace Quantra.Client.Tests;

/// <summary>Failures of some calls that must not affect others, over gRPC and inside this process.</summary>
public abstract class FaultTests(PredictorFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    protected PredictorFixture Fixture { get; } = fixture;

    protected abstract IStockPredictor Predictor { get; }

    private PredictionRequest One => new("small", BarPanel.ReadCsv(Fixture.PathOf("bars.csv")).Select("AAPL"));

    private PredictionRequest[] Thousand => [.. Enumerable.Repeat(One, 1000)];

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task Two_thousand_concurrent_calls_are_all_answered()
    {
        var request = One with { Model = "tft" };
        var forecasts = await Task.WhenAll(Enumerable.Range(0, 2000).Select(_ => Predictor.PredictAsync(request, Token)));
        Assert.All(forecasts, forecast => Assert.Equal(forecasts[0].ForecastId, forecast.ForecastId));
    }

    [Fact]
    public async Task Concurrent_explanations_of_a_watch_list_are_all_answered()
    {
        var request = new ExplanationRequest(One, 5);
        var attributions = await Task.WhenAll(Enumerable.Range(0, 30).Select(_ => Predictor.ExplainAsync(request, Token)));
        Assert.All(attributions, attribution => Assert.Equal(attributions[0], attribution));
    }

    [Fact]
    public async Task One_invalid_symbol_of_500_is_refused_and_the_others_are_forecast()
    {
        const int Bad = 321;
        var bars = One.Bars!;
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", bars with
        {
            Symbols = [.. Enumerable.Range(0, 500).Select(row => $"S{row}")],
            Open = Rows(bars.Open),
            High = Rows(bars.High),
            Low = Rows(bars.Low),
            Close = Rows(bars.Close),
            Volume = Rows(bars.Volume),
            AdjustedClose = Rows(bars.AdjustedClose),
        }), Token);
        var (symbol, refusal) = Assert.Single(forecast.Refusals);
        Assert.Equal(($"S{Bad}", QuantraReason.TooFewBars), (symbol, refusal.Reason));
        var single = await Predictor.PredictAsync(One, Token);
        Assert.All(forecast.Table(), row => Assert.Equal(row.Symbol == symbol ? double.NaN : single.Value("AAPL", row.Horizon, row.Quantile), row.Value, 6));

        double[] Rows(ReadOnlyMemory<double> column)
        {
            double[] all = [.. Enumerable.Repeat(column.ToArray(), 500).SelectMany(row => row)];
            all.AsSpan(Bad * column.Length, column.Length - 5).Fill(double.NaN);
            return all;
        }
    }

    [Fact]
    public async Task One_invalid_request_of_500_is_rejected_and_the_others_are_answered()
    {
        var requests = Enumerable.Repeat(One, 500).ToArray();
        requests[321] = new PredictionRequest("small", One.Bars!.Last(5)) { RequestId = "bad" };
        var results = await Predictor.PredictManyAsync(requests, Token);
        Assert.Equal(("bad", QuantraReason.TooFewBars), (results[321].RequestId, results[321].Error!.Reason));
        Assert.Equal(499, results.Count(result => result.Forecast is not null));
    }

    [Fact]
    public async Task A_queued_call_can_be_cancelled_and_its_neighbours_are_answered()
    {
        using var source = new CancellationTokenSource();
        var first = Predictor.PredictManyAsync(Thousand, Token);
        var cancelled = Predictor.PredictManyAsync(Thousand, source.Token);
        var last = Predictor.PredictAsync(One, Token);
        await source.CancelAsync();
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => cancelled);
        Assert.Equal(source.Token, failure.CancellationToken);
        Assert.DoesNotContain(await first, result => result.Forecast is null);
        Assert.NotNull(await last);
    }

    [Fact]
    public async Task A_running_call_can_be_cancelled_and_the_next_is_answered()
    {
        using var source = new CancellationTokenSource();
        var request = new ManyExplanationsRequest(One with { Model = "tft" }, []) { Detail = ExplanationDetail.Cells, Tolerance = 0.0001 };
        var explaining = Predictor.ExplainManyAsync(request, source.Token);
        var predicting = Predictor.PredictManyAsync([.. Thousand.Select(one => one with { Model = "tft" })], source.Token);
        await Predictor.PredictAsync(One, Token);
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => explaining);
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => predicting);
        Assert.NotNull(await Predictor.PredictAsync(One with { Model = "tft" }, Token));
        Assert.NotNull(await Predictor.ExplainAsync(new(One, 5), Token));
    }
}
