using System.Collections.Concurrent;

namespace Quantra.Client.Tests;

/// <summary>Streams of every predictor, over gRPC and inside this process.</summary>
public abstract class StreamTests(PredictorFixture fixture)
{
    private static readonly TimeSpan Ample = TimeSpan.FromSeconds(30);

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    protected PredictorFixture Fixture => fixture;

    protected abstract IStockPredictor Predictor { get; }

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(fixture.PathOf("bars.csv")).Select("AAPL"));

    protected abstract Task<IStockPredictor> OpenAsync(TimeSpan timeout, int maxInFlight = 32, TimeSpan? graceTime = null);

    [Fact]
    public async Task Each_request_has_a_result_with_its_id()
    {
        var panel = await BarPanel.ReadCsvAsync(fixture.PathOf("bars.csv"), Token);
        string[] models = ["small", "graph", "fitted"];
        var asked = models.ToDictionary(model => model, model => new PredictionRequest(model, panel) { RequestId = model });
        var results = await Predictor.PredictStreamAsync(asked.Values, Token).ReadAsync(Token);
        Assert.Equal(models.Order(), results.Select(result => result.RequestId).Order());
        foreach (var result in results)
            Assert.Equal(await Predictor.PredictAsync(asked[result.RequestId], Token), result.GetForecast());
    }

    [Fact]
    public async Task One_invalid_request_of_a_thousand_fails_alone()
    {
        var (good, bad) = (Request, Request with { Model = "nowhere", RequestId = "bad" });
        var requests = Enumerable.Range(0, 1000).Select(place => place == 500 ? bad : good with { RequestId = $"{place}" });
        var results = await Predictor.PredictStreamAsync(RequestLists.Of(requests), Token).ReadAsync(Token);
        Assert.Equal(1000, results.DistinctBy(result => result.RequestId).Count());
        Assert.Equal(("bad", QuantraReason.ModelNotFound), results.Where(one => one.Error is not null).Select(one => (one.RequestId, one.Error!.Reason)).Single());
    }

    [Fact]
    public async Task Requests_without_an_id_get_their_index()
    {
        var results = await Predictor.PredictStreamAsync(RequestLists.Of(Request, Request with { RequestId = "x" }, Request), Token).ReadAsync(Token);
        Assert.Equal(["0", "2", "x"], results.Select(result => result.RequestId).Order());
    }

    [Fact]
    public async Task No_requests_give_no_results() =>
        Assert.Empty(await Predictor.PredictStreamAsync(RequestLists.Of(), Token).ReadAsync(Token));

    [Fact]
    public async Task Requests_are_taken_no_faster_than_results_are_read()
    {
        await using var predictor = await OpenAsync(Ample, maxInFlight: 1);
        var feed = new RequestFeed(Request);
        var read = 0;
        await foreach (var result in predictor.PredictStreamAsync(feed, Token))
        {
            Assert.Equal((null, $"{read++}"), (result.Error, result.RequestId));
            for (var look = 0; look < 5; look++) // other calls succeed meanwhile, and no more requests are taken
                await predictor.GetModelAsync("small", Token);
            Assert.InRange(feed.Taken, read, read + 1);
            if (read == 10)
                break;
        }

        await feed.Ended;
    }

    [Fact]
    public async Task A_reader_that_stops_ends_an_endless_request_source()
    {
        var feed = new RequestFeed(Request);
        var read = 0;
        await foreach (var result in Predictor.PredictStreamAsync(feed, Token))
        {
            if (++read == 3)
                break;
        }

        Assert.True(feed.Ended.IsCompleted);
    }

    [Fact]
    public async Task A_reader_can_stop_although_the_request_source_ignores_its_token()
    {
        var (reached, stuck) = (new TaskCompletionSource(), new TaskCompletionSource());
        var feed = new RequestFeed(Request) { Count = 3, Then = _ => ReachAsync() };
        await foreach (var result in Predictor.PredictStreamAsync(feed, Token))
        {
            await reached.Task;
            break;
        }

        Assert.False(feed.Ended.IsCompleted);
        stuck.SetResult();
        await feed.Ended;

        Task ReachAsync()
        {
            reached.SetResult();
            return stuck.Task;
        }
    }

    [Fact]
    public async Task A_blocking_list_blocks_neither_earlier_requests_nor_the_reader()
    {
        using var more = new BlockingCollection<PredictionRequest>();
        more.Add(Request, Token);
        await foreach (var result in Predictor.PredictStreamAsync(more.GetConsumingEnumerable(Token), Token))
        {
            Assert.Null(result.Error);
            break; // while the list blocks
        }

        more.CompleteAdding();
    }

    [Fact]
    public async Task A_blocking_request_source_does_not_block_earlier_requests()
    {
        using var feed = new BlockingRequestFeed(Request);
        var read = 0;
        await foreach (var result in Predictor.PredictStreamAsync(feed, Token))
        {
            read++;
            feed.LetGo();
        }

        Assert.Equal(1, read);
    }

    [Fact]
    public async Task An_exception_of_the_request_source_ends_the_call()
    {
        var broken = new InvalidDataException("the feed broke");
        var feed = new RequestFeed(Request) { Count = 3, Then = _ => throw broken };
        await using var results = Predictor.PredictStreamAsync(feed, Token).GetAsyncEnumerator(Token);
        var failure = await Assert.ThrowsAsync<InvalidDataException>(async () =>
        {
            while (await results.MoveNextAsync())
                Assert.Null(results.Current.Error);
        });
        Assert.Same(broken, failure);
        Assert.False(await results.MoveNextAsync());
        Assert.True(feed.Ended.IsCompleted);
    }

    [Fact]
    public async Task A_null_request_is_rejected_with_its_index()
    {
        var failure = await Assert.ThrowsAsync<ArgumentException>(() =>
            Predictor.PredictStreamAsync(RequestLists.Of(Request, Request with { Covariates = null! }), Token).ReadAsync(Token));
        Assert.StartsWith("requests[1].Covariates is null", failure.Message, StringComparison.Ordinal);
        failure = await Assert.ThrowsAsync<ArgumentException>(() => Predictor.PredictStreamAsync(RequestLists.Of(null!, Request), Token).ReadAsync(Token));
        Assert.StartsWith("requests[0] is null", failure.Message, StringComparison.Ordinal);
        Assert.Throws<ArgumentNullException>(() => Predictor.PredictStreamAsync((IAsyncEnumerable<PredictionRequest>)null!, Token));
        Assert.Throws<ArgumentNullException>(() => Predictor.PredictStreamAsync((IEnumerable<PredictionRequest>)null!, Token));
    }

    [Fact]
    public async Task A_cancelled_stream_throws_OperationCanceledException_and_ends_its_feed()
    {
        using var source = new CancellationTokenSource();
        var feed = new RequestFeed(Request);
        var read = 0;
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(async () =>
        {
            await foreach (var result in Predictor.PredictStreamAsync(feed, source.Token))
            {
                if (++read == 3)
                    await source.CancelAsync();
            }
        });
        Assert.Equal((source.Token, 3), (failure.CancellationToken, read));
        Assert.True(feed.Ended.IsCompleted);
    }

    [Fact]
    public async Task A_stream_that_waits_for_requests_can_be_cancelled()
    {
        using var source = new CancellationTokenSource();
        var feed = new RequestFeed(Request) { Count = 1, Then = token => Task.Delay(Timeout.Infinite, token) };
        await using var results = Predictor.PredictStreamAsync(feed, source.Token).GetAsyncEnumerator(source.Token);
        Assert.True(await results.MoveNextAsync());
        var next = results.MoveNextAsync().AsTask();
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => next);
        await feed.Ended;
    }

    [Fact]
    public async Task An_abandoned_stream_ends_when_it_is_collected()
    {
        var feed = new RequestFeed(Request);
        await LeaveAsync();
        await GarbageCollection.CollectUntilAsync(() => Task.FromResult(feed.Ended.IsCompleted));

        async Task LeaveAsync()
        {
            var results = Predictor.PredictStreamAsync(feed, Token).GetAsyncEnumerator(Token);
            Assert.True(await results.MoveNextAsync());
        }
    }

    [Fact]
    public async Task A_disposed_predictor_answers_running_requests_and_takes_no_more()
    {
        var predictor = await OpenAsync(Ample);
        var feed = new RequestFeed(Request);
        var (read, ending) = (0, default(ValueTask));
        var failure = await Assert.ThrowsAsync<QuantraException>(async () =>
        {
            await foreach (var result in predictor.PredictStreamAsync(feed, Token))
            {
                Assert.Null(result.Error);
                if (++read == 40)
                    ending = predictor.DisposeAsync();
            }
        });
        await ending;
        Assert.Equal((QuantraStatus.Cancelled, QuantraReason.Cancelled), (failure.Code, failure.Reason));
        Assert.InRange(feed.Taken - read, 0, 1); // one request may be on its way
        await Assert.ThrowsAsync<ObjectDisposedException>(() => predictor.PredictStreamAsync(RequestLists.Of(Request), Token).ReadAsync(Token));
    }
}
