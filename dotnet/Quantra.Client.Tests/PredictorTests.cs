using Grpc.Core;

namespace Quantra.Client.Tests;

/// <summary>Tests of every predictor that uses Python, over gRPC and inside this process.</summary>
public abstract class PredictorTests : PredictionTests
{
    protected PredictorTests(PredictorFixture fixture, IStockPredictor predictor)
        : base(fixture, predictor)
    {
    }

    protected abstract Task<IStockPredictor> OpenAsync(TimeSpan timeout, TimeSpan? graceTime = null);

    /// <summary>Opens the same predictor with another timeout.</summary>
    protected abstract IStockPredictor WithTimeout(IStockPredictor predictor, TimeSpan timeout);

    [Fact]
    public async Task A_forecast_has_Pythons_id()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("small", Bars), Token);
        Assert.Equal(Expected.Of("one").Text("forecast_id"), forecast.ForecastId);
    }

    [Fact]
    public async Task A_symbol_without_a_forecast_has_a_reason()
    {
        var bars = await BarPanel.ReadCsvAsync(Fixture.PathOf("late.csv"), Token);
        var forecast = await Predictor.PredictAsync(new PredictionRequest("fitted", bars), Token);
        var expected = Assert.Single(Expected.Of("fitted_late").All("refusals"));
        var (symbol, refusal) = Assert.Single(forecast.Refusals);
        Assert.Equal((expected.Text("symbol"), expected.Text("message")), (symbol, refusal.Message));
        Assert.Equal(QuantraReason.NoUsableSymbol, refusal.Reason);
    }

    [Fact]
    public async Task Data_frame_columns_equal_the_table()
    {
        var forecast = await Predictor.PredictAsync(new PredictionRequest("graph", Panel), Token);
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
        var delayed = await Predictor.PredictAsync(new PredictionRequest("delayed", Panel), Token);
        Assert.Equal(["symbol", "horizon", "quantile", "date", "value", "return"], delayed.ToColumns().Keys);
    }

    [Fact]
    public async Task A_model_describes_its_inputs()
    {
        var model = await Predictor.GetModelAsync("small@1", Token);
        Assert.Equal(("small", 1, "lstm"), (model.Name, model.Version, model.Kind));
        Assert.Equal(Expected.BarsNeeded, model.BarsNeeded);
        Assert.Equal(Expected.Of("window").Text("schema_hash"), model.SchemaHash);
        Assert.Equal(["integrated-gradients", "shapley", "occlusion"], model.ExplainMethods);
        Assert.NotEmpty(model.ObservedFeatures[0].Expression);
        Assert.Equal(Models, (await Predictor.ListModelsAsync(Token)).Select(one => one.Name));
    }

    [Fact]
    public async Task A_model_name_of_a_megabyte_is_too_large()
    {
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.GetModelAsync(new string('x', 1 << 20), Token));
        Assert.Equal((QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge), (failure.Code, failure.Reason));
        Assert.True(failure.Message.Length < 1000);
    }

    [Fact]
    public async Task A_cancelled_call_throws_OperationCanceledException()
    {
        using var source = new CancellationTokenSource();
        var call = Predictor.PredictManyAsync([.. Enumerable.Repeat(new PredictionRequest("small", Panel), 200)], source.Token);
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
    public async Task APredictor_can_be_disposed_with_many_queued_calls()
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
    public async Task A_disposedPredictor_rejects_calls()
    {
        var predictor = await OpenAsync(TimeSpan.FromSeconds(30));
        await predictor.PredictAsync(new PredictionRequest("small", Bars), Token);
        await predictor.DisposeAsync();
        await predictor.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => predictor.ListModelsAsync(Token));
    }
}
