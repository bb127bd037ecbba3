namespace Quantra.Client.Tests;

/// <summary>The interface's default implementations of streams and sessions.</summary>
public sealed class MinimalPredictorTests(PredictorFixture fixture)
{
    private IStockPredictor Plain => new MinimalPredictor(fixture.Grpc);

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task The_default_stream_makes_one_prediction_after_the_other()
    {
        var request = new PredictionRequest("small", SessionData.Split(fixture, 1).Before);
        var feed = RequestLists.Of(request, request with { Model = "nowhere", RequestId = "bad" }, request with { RequestId = "last" });
        var results = await Plain.PredictStreamAsync(feed, Token).ReadAsync(Token);
        Assert.Equal(["0", "bad", "last"], results.Select(result => result.RequestId));
        Assert.Equal([null, QuantraReason.ModelNotFound, null], results.Select(result => result.Error?.Reason));
        Assert.Equal(await fixture.Grpc.PredictAsync(request, Token), results[0].GetForecast());
        Assert.Throws<ArgumentNullException>(() => Plain.PredictStreamAsync((IAsyncEnumerable<PredictionRequest>)null!, Token));
        var failure = await Assert.ThrowsAsync<ArgumentException>(() => Plain.PredictStreamAsync(RequestLists.Of(request, null!), Token).ReadAsync(Token));
        Assert.StartsWith("requests[1] is null", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_stream_stops_taking_requests_when_results_are_not_read()
    {
        var feed = new RequestFeed(new PredictionRequest("small", SessionData.Split(fixture, 1).Before));
        await foreach (var result in Plain.PredictStreamAsync(feed, Token))
            break;
        Assert.Equal((1, true), (feed.Taken, feed.Ended.IsCompleted));
    }

    [Fact]
    public async Task A_local_session_forecasts_like_a_server_session()
    {
        var (panel, before, days) = SessionData.Split(fixture, 4);
        var request = new SessionRequest("small", before);
        await using var plain = await Plain.OpenSessionAsync(request, Token);
        await using var served = await fixture.Grpc.OpenSessionAsync(request, Token);
        Assert.Equal(served.FirstForecast, plain.FirstForecast);
        Assert.Equal(served.Symbols, plain.Symbols);
        var (first, second) = (panel.Between(days[0], days[0]), panel.Between(days[1], days[1]));
        await BothAsync(session => session.PushAsync(first.Select("IBM"), cancellationToken: Token));
        await BothAsync(session => session.PushAsync(first.Select("IBM"), cancellationToken: Token));
        await BothAsync(session => session.FlushAsync(Token));
        await BothAsync(session => session.PushAsync(first.Select("AAPL"), cancellationToken: Token));
        await BothAsync(session => session.PushAsync(Empty(second), cancellationToken: Token));
        await BothAsync(session => session.PushAsync(panel.Between(days[2], days[2]), cancellationToken: Token));
        await BothAsync(session => session.PushAsync(panel.Between(days[3], days[3]).Select("IBM"), flush: true, cancellationToken: Token));

        async Task BothAsync(Func<IBarSession, Task<PushResult>> push) => Assert.Equal(await push(served), await push(plain));

        static BarPanel Empty(BarPanel bars)
        {
            double[] none = [double.NaN, double.NaN];
            return bars with { Open = none, High = none, Low = none, Close = none, Volume = none, AdjustedClose = none };
        }
    }

    [Fact]
    public async Task Covariates_are_sent_with_the_bars()
    {
        var (whole, day) = (SessionData.WithCovariates(fixture, ..), SessionData.WithCovariates(fixture, ^1..));
        await using var session = await Plain.OpenSessionAsync(SessionData.WithCovariates(fixture, ..^1).ToSession(), Token);
        var (first, rest) = (day.Of(1), day.Of(0, 2));
        Assert.Equal(2, (await session.PushAsync(first.Bars!, first.Covariates, cancellationToken: Token)).WaitsFor.Count);
        var pushed = await session.PushAsync(rest.Bars!, rest.Covariates, cancellationToken: Token);
        Assert.Equal(await fixture.Grpc.PredictAsync(whole, Token), pushed.GetForecast());
        await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(first.Bars!, cancellationToken: Token));
    }

    [Fact]
    public async Task A_rejected_push_leaves_a_local_session_unchanged()
    {
        var (panel, before, days) = SessionData.Split(fixture, 2);
        var (first, second) = (panel.Between(days[0], days[0]), panel.Between(days[1], days[1]));
        await using var session = await Plain.OpenSessionAsync(new SessionRequest("small", before), Token);
        await RefusedAsync(panel.Between(days[0], days[1]), "push each day");
        await RefusedAsync(first with { Symbols = ["FB", "IBM"] }, "FB is not a symbol");
        await RefusedAsync(first with { AdjustedClose = default }, "must have the same columns");
        await RefusedAsync(before.Last(2).Until(before.Sessions.Span[^2]), "has reached");
        await RefusedAsync(second, "XNYS held sessions on"); // rejected by the predictor itself
        Assert.Equal(QuantraReason.MalformedRequest, (await Assert.ThrowsAsync<QuantraException>(() => session.FlushAsync(Token))).Reason);
        await session.PushAsync(first.Select("IBM"), cancellationToken: Token);
        await RefusedAsync(second, "still waiting for AAPL");
        var pushed = await session.PushAsync(first, cancellationToken: Token);
        Assert.Equal(await fixture.Grpc.PredictAsync(new("small", panel.Until(days[0])), Token), pushed.GetForecast());

        async Task RefusedAsync(BarPanel bars, string expected)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(bars, cancellationToken: Token));
            Assert.Contains(expected, failure.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task A_disposed_session_rejects_pushes()
    {
        var (panel, before, _) = SessionData.Split(fixture, 1);
        var session = await Plain.OpenSessionAsync(new SessionRequest("small", before) { SessionId = "mine" }, Token);
        Assert.Equal(("mine", "small", 0, null), (session.SessionId, session.Model.Text, session.Reopenings, session.LastLoss));
        await session.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => session.PushAsync(panel.Last(1), cancellationToken: Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => Plain.OpenSessionAsync(null!, Token));
    }

    [Fact]
    public void Methods_without_a_default_are_not_supported()
    {
        var request = new GlobalExplanationRequest([new("small", SessionData.Split(fixture, 1).Before)], []);
        var failure = Assert.Throws<NotSupportedException>(() => Plain.ExplainGlobalAsync(request, Token));
        Assert.StartsWith("MinimalPredictor does not support", failure.Message, StringComparison.Ordinal);
    }
}
