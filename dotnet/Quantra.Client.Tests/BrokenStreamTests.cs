namespace Quantra.Client.Tests;

/// <summary>Streams whose connection or server is lost.</summary>
public sealed class BrokenStreamTests(PredictorFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(fixture.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public async Task A_stream_survives_lost_connections_with_one_result_per_request()
    {
        await using var relay = new TcpRelay(fixture.Address);
        using var seen = new TelemetryRecorder();
        await using var client = new QuantraClient(relay.Address);
        var read = new List<PredictionResult>();
        await foreach (var result in client.PredictStreamAsync(new RequestFeed(Request) { Count = 150 }, Token))
        {
            read.Add(result);
            if (read.Count % 50 == 1)
                relay.Break();
        }

        Assert.All(read, result => Assert.Equal(read[0].GetForecast().ForecastId, result.GetForecast().ForecastId));
        Assert.Equal(150, read.DistinctBy(result => result.RequestId).Count());
        Assert.InRange(seen.Retries, 1, 3);
    }

    [Fact]
    public async Task Without_retries_a_broken_stream_is_UNAVAILABLE_after_its_answers()
    {
        await using var relay = new TcpRelay(fixture.Address);
        await using var client = new QuantraClient(relay.Address, new() { MaxAttempts = 1 });
        var feed = new RequestFeed(Request);
        var read = 0;
        var failure = await Assert.ThrowsAsync<QuantraException>(async () =>
        {
            await foreach (var result in client.PredictStreamAsync(feed, Token))
            {
                Assert.Null(result.Error);
                if (++read == 40)
                    relay.Break();
            }
        });
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (failure.Code, failure.Reason));
        Assert.InRange(read, 40, feed.Taken);
        Assert.True(feed.Ended.IsCompleted);
    }

    [Fact]
    public async Task A_missing_server_is_UNAVAILABLE()
    {
        using var seen = new TelemetryRecorder();
        await using var client = new QuantraClient(new Uri("http://127.0.0.1:1"), new() { MaxAttempts = 3 });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictStreamAsync(RequestLists.Of(Request), Token).ReadAsync(Token));
        Assert.Equal((QuantraReason.Unavailable, 2L), (failure.Reason, seen.Retries));
        failure = await Assert.ThrowsAsync<QuantraException>(() => client.OpenSessionAsync(new SessionRequest("small", Request.Bars!), Token));
        Assert.Equal((QuantraReason.Unavailable, 4L), (failure.Reason, seen.Retries));
    }

    [Fact]
    public async Task A_request_expires_despite_remaining_attempts()
    {
        await using var client = new QuantraClient(new Uri("http://127.0.0.1:1"), new() { MaxAttempts = 1_000, Timeout = TimeSpan.FromSeconds(1) });
        var result = Assert.Single(await client.PredictStreamAsync(RequestLists.Of(Request), Token).ReadAsync(Token));
        Assert.Equal(QuantraReason.DeadlineExceeded, result.Error?.Reason);
        var opening = client.OpenSessionAsync(new SessionRequest("small", Request.Bars!), Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => opening.WaitAsync(TimeSpan.FromSeconds(60), Token));
        Assert.True(failure.Reason is QuantraReason.DeadlineExceeded or QuantraReason.Unavailable, failure.Message);
    }

    [Fact]
    public async Task A_large_request_fails_alone()
    {
        await using var client = new QuantraClient(fixture.Address, new() { MaxRequestBytes = 10_000 });
        var (small, large) = (Request, new PredictionRequest("small", await BarPanel.ReadCsvAsync(fixture.PathOf("bars.csv"), Token)));
        var requests = RequestLists.Of(new PredictionRequest("small", small.Bars!.Last(150)), large);
        var results = await client.PredictStreamAsync(requests, Token).ReadAsync(Token);
        Assert.Equal([null, QuantraReason.RequestTooLarge], results.OrderBy(result => result.RequestId).Select(result => result.Error?.Reason));
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.OpenSessionAsync(new SessionRequest("small", large.Bars!), Token));
        Assert.Equal(QuantraReason.RequestTooLarge, failure.Reason);
    }

    [Fact]
    public async Task Stream_and_session_requests_are_recorded_with_model_and_reason()
    {
        using var seen = new TelemetryRecorder();
        using var log = new LogRecorder();
        await using var client = new QuantraClient(fixture.Address, new() { LoggerFactory = log });
        var request = Request;
        await client.PredictStreamAsync(RequestLists.Of(request, request with { Model = "nowhere" }), Token).ReadAsync(Token);
        Assert.Equal(["PredictStream nowhere MODEL_NOT_FOUND", "PredictStream small OK"], seen.Calls.Order());
        Assert.Equal("quantra.v1.PredictionService/PredictStream", Assert.Single(seen.Activities).OperationName);
        await using (var session = await client.OpenSessionAsync(new SessionRequest("small", request.Bars!), Token))
            await Assert.ThrowsAsync<QuantraException>(() => session.FlushAsync(Token));
        string[] ofSession = ["GetModel small@1 OK", "PredictStream small MALFORMED_REQUEST", "PredictStream small OK"];
        Assert.Equal(ofSession, seen.Calls.Except(["PredictStream nowhere MODEL_NOT_FOUND"]).Order());
        Assert.Equal(4, seen.Activities.Count);
        var price = request.Bars!.Close.Span[^1].ToString("R", System.Globalization.CultureInfo.InvariantCulture);
        Assert.DoesNotContain(log.Lines, line => line.Contains(price, StringComparison.Ordinal));
    }
}
