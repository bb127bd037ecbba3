using System.Collections.Concurrent;

namespace Quantra.Client.Tests;

/// <summary>Streams of every predictor, over gRPC and inside this process.</summary>
public abstract class StreamTests(Doors doors)
{
    private static readonly TimeSpan Ample = TimeSpan.FromSeconds(30);

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    protected Doors Doors => doors;

    protected abstract IStockPredictor Predictor { get; }

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(doors.PathOf("bars.csv")).Select("AAPL"));

    protected abstract Task<IStockPredictor> OpenAsync(TimeSpan timeout, int maxInFlight = 32, TimeSpan? graceTime = null);

    [Fact]
    public async Task Each_request_has_its_result_by_its_id()
    {
        var panel = await BarPanel.ReadCsvAsync(doors.PathOf("bars.csv"), Token);
        string[] models = ["small", "graph", "fitted"];
        var asked = models.ToDictionary(model => model, model => new PredictionRequest(model, panel) { RequestId = model });
        var results = await Predictor.PredictStreamAsync(asked.Values, Token).ReadAsync(Token);
        Assert.Equal(models.Order(), results.Select(result => result.RequestId).Order());
        foreach (var result in results)
            Assert.Equal(await Predictor.PredictAsync(asked[result.RequestId], Token), result.GetForecast());
    }

    [Fact]
    public async Task One_bad_request_of_a_thousand_is_its_own_result()
    {
        var (good, bad) = (Request, Request with { Model = "nowhere", RequestId = "bad" });
        var requests = Enumerable.Range(0, 1000).Select(place => place == 500 ? bad : good with { RequestId = $"{place}" });
        var results = await Predictor.PredictStreamAsync(Requests.Of(requests), Token).ReadAsync(Token);
        Assert.Equal(1000, results.DistinctBy(result => result.RequestId).Count());
        Assert.Equal(("bad", QuantraReason.ModelNotFound), results.Where(one => one.Error is not null).Select(one => (one.RequestId, one.Error!.Reason)).Single());
    }

    [Fact]
    public async Task Requests_without_an_id_are_named_by_their_place()
    {
        var results = await Predictor.PredictStreamAsync(Requests.Of(Request, Request with { RequestId = "x" }, Request), Token).ReadAsync(Token);
        Assert.Equal(["0", "2", "x"], results.Select(result => result.RequestId).Order());
    }

    [Fact]
    public async Task No_requests_give_no_results() =>
        Assert.Empty(await Predictor.PredictStreamAsync(Requests.Of(), Token).ReadAsync(Token));

    [Fact]
    public async Task Requests_are_taken_no_faster_than_results_are_read()
    {
        await using var predictor = await OpenAsync(Ample, maxInFlight: 1);
        var feed = new RequestFeed(Request);
        var read = 0;
        await foreach (var result in predictor.PredictStreamAsync(feed, Token))
        {
            Assert.Equal((null, $"{read++}"), (result.Error, result.RequestId));
            for (var look = 0; look < 5; look++) // other calls pass, and nothing more is taken
                await predictor.GetModelAsync("small", Token);
            Assert.InRange(feed.Taken, read, read + 1);
            if (read == 10)
                break;
        }

        await feed.Ended;
    }

    [Fact]
    public async Task Whoever_stops_to_read_ends_a_feed_that_never_ends()
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
    public async Task Whoever_stops_to_read_does_not_wait_for_a_feed_that_heeds_no_token()
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
    public async Task A_list_that_makes_its_caller_wait_holds_neither_what_was_asked_nor_who_stops_to_read()
    {
        using var more = new BlockingCollection<PredictionRequest>();
        more.Add(Request, Token);
        await foreach (var result in Predictor.PredictStreamAsync(more.GetConsumingEnumerable(Token), Token))
        {
            Assert.Null(result.Error);
            break; // while the list waits for another one
        }

        more.CompleteAdding();
    }

    [Fact]
    public async Task A_feed_that_holds_its_thread_does_not_hold_what_was_asked()
    {
        using var feed = new HoldingFeed(Request);
        var read = 0;
        await foreach (var result in Predictor.PredictStreamAsync(feed, Token))
        {
            read++;
            feed.LetGo();
        }

        Assert.Equal(1, read);
    }

    [Fact]
    public async Task What_a_feed_throws_is_thrown_once_and_ends_the_call()
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
    public async Task A_null_among_the_requests_is_refused_by_its_place()
    {
        var failure = await Assert.ThrowsAsync<ArgumentException>(() =>
            Predictor.PredictStreamAsync(Requests.Of(Request, Request with { Covariates = null! }), Token).ReadAsync(Token));
        Assert.StartsWith("requests[1].Covariates is null", failure.Message, StringComparison.Ordinal);
        failure = await Assert.ThrowsAsync<ArgumentException>(() => Predictor.PredictStreamAsync(Requests.Of(null!, Request), Token).ReadAsync(Token));
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
    public async Task A_stream_that_waits_for_its_feed_can_be_cancelled()
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
    public async Task A_stream_that_is_left_undisposed_ends_once_it_is_garbage()
    {
        var feed = new RequestFeed(Request);
        await LeaveAsync();
        await Garbage.CollectUntilAsync(() => Task.FromResult(feed.Ended.IsCompleted));

        async Task LeaveAsync()
        {
            var results = Predictor.PredictStreamAsync(feed, Token).GetAsyncEnumerator(Token);
            Assert.True(await results.MoveNextAsync());
        }
    }

    [Fact]
    public async Task A_predictor_that_ends_takes_no_more_requests_answers_those_under_way_and_says_so()
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
        Assert.InRange(feed.Taken - read, 0, 1); // one may just be on its way from the feed
        await Assert.ThrowsAsync<ObjectDisposedException>(() => predictor.PredictStreamAsync(Requests.Of(Request), Token).ReadAsync(Token));
    }
}
