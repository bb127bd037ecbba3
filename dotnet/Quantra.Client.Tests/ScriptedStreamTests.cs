using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>Responses, and timings of responses, that a real predictor of this version does not produce on demand.</summary>
public sealed class ScriptedStreamTests
{
    private static readonly QuantraException Gone = new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "gone").ToException();

    private static readonly PredictionRequest Request = new("small", Bars(3));

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task An_id_can_be_reused_only_after_its_result_was_read()
    {
        (V1.PredictStreamRequest Request, ScriptedStreamTransport.ScriptedCall ScriptedCall)? first = null;
        var (arrived, read) = (new TaskCompletionSource(), new SemaphoreSlim(0));
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            if (first is not null)
                call.Forecast(request);
            first ??= (request, call);
            arrived.TrySetResult();
        });
        var results = new List<PredictionResult>();
        await foreach (var result in PredictorStreams.PredictStreamAsync(transport, new ActiveCalls(), transport, TwiceAsync(), Token))
        {
            results.Add(result);
            if (results.Count == 2)
                read.Release();
        }

        Assert.Equal(["same", "same", "same"], results.Select(result => result.RequestId));
        var refused = results[0].Error!;
        Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.DuplicateId, "same"), (refused.Code, refused.Reason, refused.Metadata["request_id"]));
        Assert.All(results[1..], result => Assert.NotNull(result.Forecast));

        async IAsyncEnumerable<PredictionRequest> TwiceAsync()
        {
            yield return Request with { RequestId = "same" };
            await arrived.Task;
            yield return Request with { RequestId = "same" };
            first!.Value.ScriptedCall.Forecast(first.Value.Request);
            await read.WaitAsync(Token);
            yield return Request with { RequestId = "same" };
        }
    }

    [Fact]
    public async Task QUEUE_FULL_is_retried()
    {
        var times = 0;
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            if (++times < 4)
                call.Error(request, QuantraReason.QueueFull, QuantraStatus.ResourceExhausted);
            else
                call.Forecast(request);
        });
        Assert.NotNull(Assert.Single(await ReadAsync(transport, Request)).Forecast);
        Assert.Equal((4, 1), (times, transport.Calls.Count));
    }

    [Fact]
    public async Task QUEUE_FULL_is_the_result_after_the_last_attempt()
    {
        var transport = new ScriptedStreamTransport((request, call) => call.Error(request, QuantraReason.QueueFull, QuantraStatus.ResourceExhausted));
        Assert.Equal(QuantraReason.QueueFull, Assert.Single(await ReadAsync(transport, Request)).Error?.Reason);
        Assert.Equal(4, transport.Calls[0].Sent.Count);
    }

    [Fact]
    public async Task A_call_that_repeatedly_breaks_without_an_answer_fails()
    {
        var transport = new ScriptedStreamTransport((_, call) => call.End(Gone));
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(transport, Request));
        Assert.Equal((QuantraReason.Unavailable, 4), (failure.Reason, transport.Calls.Count));
    }

    [Fact]
    public async Task A_call_that_breaks_after_each_answer_is_always_continued()
    {
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            call.Forecast(request);
            call.End(Gone);
        });
        var results = await ReadAsync(transport, [.. Enumerable.Repeat(Request, 6)]);
        Assert.Equal(6, results.Count(result => result.Forecast is not null));
        Assert.InRange(transport.Calls.Count, 6, 7);
    }

    [Fact]
    public async Task A_replaced_token_is_requested_again_and_an_invalid_one_fails()
    {
        var refusal = new QuantraError(QuantraStatus.Unauthenticated, QuantraReason.Unauthenticated, "who?").ToException();
        var replaced = new ScriptedStreamTransport((request, call) =>
        {
            if (call.Sent.Count > 1 && call.Number == 0)
                call.End(refusal);
            else
                call.Forecast(request);
        });
        Assert.Equal(2, (await ReadAsync(replaced, Request, Request)).Count(result => result.Forecast is not null));
        Assert.Equal([QuantraReason.Unauthenticated], replaced.Reopenings);
        var unknown = new ScriptedStreamTransport((_, call) => call.End(refusal));
        Assert.Equal(refusal.Error, (await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(unknown, Request))).Error);
        Assert.Single(unknown.Calls);
    }

    [Fact]
    public async Task A_silent_predictor_is_DEADLINE_EXCEEDED()
    {
        var transport = Hasty((_, _) => { });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(transport, Request));
        Assert.Equal((QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded), (failure.Code, failure.Reason));
        Assert.StartsWith("no response from the script within 0.6 s", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_predictor_that_never_ends_the_call_does_not_block_the_reader()
    {
        var transport = Hasty((request, call) => call.Forecast(request), ends: false);
        Assert.NotNull(Assert.Single(await ReadAsync(transport, Request)).Forecast);
    }

    [Fact]
    public async Task Each_request_has_its_remaining_time()
    {
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            if (call.Number == 0)
                call.End(Gone);
            else
                call.Forecast(request);
        });
        await ReadAsync(transport, Request);
        var (first, second) = (transport.Calls[0].Sent[0].TimeoutS, transport.Calls[1].Sent[0].TimeoutS);
        Assert.InRange(first, 29, 30);
        Assert.InRange(second, 25, first - 0.05);
    }

    [Fact]
    public async Task An_unknown_response_of_a_newer_predictor_fails_only_its_request()
    {
        var transport = new ScriptedStreamTransport((request, call) => call.Respond(request, request.RequestId switch
        {
            "0" => new(),
            "1" => new() { Ack = new() },
            "2" => new() { Forecast = new() { AsOfSession = 20139999 } },
            "3" => new() { Error = new() { Reason = "A_NEW_ONE", Code = 99 } },
            _ => new() { Forecast = new() },
        }));
        var results = await ReadAsync(transport, [.. Enumerable.Repeat(Request, 5)]);
        string?[] reasons = [QuantraReason.Internal, QuantraReason.Internal, QuantraReason.Internal, "A_NEW_ONE", null];
        Assert.Equal(reasons, results.OrderBy(result => result.RequestId).Select(result => result.Error?.Reason));
        Assert.Contains("20139999", results.Single(result => result.RequestId == "2").Error!.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Unknown_responses_and_premature_ends_are_INTERNAL()
    {
        var strange = new ScriptedStreamTransport((request, call) => call.Forecast(new() { RequestId = request.RequestId + "x" }));
        Assert.Equal(QuantraReason.Internal, (await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(strange, Request))).Reason);
        var brief = new ScriptedStreamTransport((_, call) => call.End());
        Assert.Equal(QuantraReason.Internal, (await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(brief, Request))).Reason);
    }

    [Fact]
    public async Task A_lost_session_whose_model_reads_more_bars_requires_resubscribing()
    {
        var lost = false;
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            if (lost && call.Number == 0)
                call.End(Gone);
            else
                call.Forecast(request);
        })
        { BarsNeeded = 3 };
        await using var session = await OpenAsync(transport, 10);
        (lost, transport.BarsNeeded) = (true, 5);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(Day(10), cancellationToken: Token));
        Assert.Equal((QuantraStatus.FailedPrecondition, QuantraReason.Resubscribe), (failure.Code, failure.Reason));
        Assert.Equal(("4", "5", 0), (failure.Metadata["have"], failure.Metadata["need"], session.Reopenings));
    }

    [Fact]
    public async Task A_session_keeps_one_bar_more_than_its_model_reads()
    {
        var lost = false;
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            if (lost && call.Number == 0)
                call.End(Gone);
            else
                call.Forecast(request);
        })
        { BarsNeeded = 3 };
        await using var session = await OpenAsync(transport, 10);
        for (var day = 10; day < 20; day++)
            await session.PushAsync(Day(day), cancellationToken: Token);
        lost = true;
        await session.PushAsync(Day(20), cancellationToken: Token);
        var again = transport.Calls[1].Sent[0].Open.Instance.Bars;
        Assert.Equal(Days(16, 20).Select(day => day.Day), again.SessionYyyymmdd.Select(session => session % 100));
        Assert.Equal([17.0, 18, 19, 20], ArrayBytes.Doubles(again.Close));
    }

    [Fact]
    public async Task A_push_without_an_answer_is_DEADLINE_EXCEEDED_and_the_next_reopens_the_session()
    {
        var isSilent = false;
        var transport = Hasty((request, call) =>
        {
            if (!isSilent)
                call.Forecast(request);
        });
        await using var session = await OpenAsync(transport, 10);
        isSilent = true;
        var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(Day(10), cancellationToken: Token));
        Assert.Equal(QuantraReason.DeadlineExceeded, failure.Reason);
        isSilent = false;
        Assert.NotNull((await session.PushAsync(Day(10), cancellationToken: Token)).Forecast);
        Assert.Equal((1, QuantraReason.DeadlineExceeded), (session.Reopenings, session.LastLoss?.Reason));
        await transport.Calls[0].Completed;
        string[][] actions = [.. transport.Calls.Select(call => call.Sent.Select(request => request.ActionCase.ToString()).ToArray())];
        Assert.Equal([["Open", "Push", "Close"], ["Open", "Push"]], actions); // the outcome of the push is unknown
        Assert.NotEqual(transport.Calls[0].Sent[0].Open.SessionId, transport.Calls[1].Sent[0].Open.SessionId);
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task A_cancelled_push_returns_its_result_if_it_was_accepted(bool isTaken)
    {
        var held = new TaskCompletionSource();
        V1.PredictStreamRequest? pushed = null;
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            if (request.ActionCase == V1.PredictStreamRequest.ActionOneofCase.Push)
            {
                pushed = request;
                held.SetResult();
            }
            else if (request.ActionCase == V1.PredictStreamRequest.ActionOneofCase.Cancel)
            {
                Assert.Equal(pushed!.RequestId, request.Cancel.RequestId);
                if (isTaken)
                    call.Forecast(pushed);
                else
                    call.Error(pushed, QuantraReason.Cancelled, QuantraStatus.Cancelled);
            }
            else
            {
                call.Forecast(request);
            }
        });
        await using var session = await OpenAsync(transport, 10);
        using var source = new CancellationTokenSource();
        var push = session.PushAsync(Day(10), cancellationToken: source.Token);
        await held.Task;
        await source.CancelAsync();
        if (isTaken)
            Assert.NotNull((await push).Forecast);
        else
            await Assert.ThrowsAnyAsync<OperationCanceledException>(() => push);
        Assert.Equal(0, session.Reopenings);
    }

    [Fact]
    public async Task A_cancelled_push_without_an_answer_is_abandoned()
    {
        var held = new TaskCompletionSource();
        var isSilent = false;
        var transport = Hasty((request, call) =>
        {
            if (!isSilent)
                call.Forecast(request);
            else if (request.ActionCase == V1.PredictStreamRequest.ActionOneofCase.Push)
                held.SetResult();
        });
        await using var session = await OpenAsync(transport, 10);
        isSilent = true;
        using var source = new CancellationTokenSource();
        var push = session.PushAsync(Day(10), cancellationToken: source.Token);
        await held.Task;
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => push);
        isSilent = false;
        Assert.NotNull((await session.PushAsync(Day(10), cancellationToken: Token)).Forecast);
        Assert.Equal((1, QuantraReason.Cancelled), (session.Reopenings, session.LastLoss?.Reason));
    }

    [Fact]
    public async Task A_session_lost_twice_within_a_push_fails()
    {
        var isLost = false;
        var transport = new ScriptedStreamTransport((request, call) =>
        {
            if (isLost && request.ActionCase == V1.PredictStreamRequest.ActionOneofCase.Push)
                call.End(Gone);
            else
                call.Forecast(request);
        });
        await using var session = await OpenAsync(transport, 10);
        isLost = true;
        var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(Day(10), cancellationToken: Token));
        Assert.Equal((QuantraReason.Unavailable, 1, 2), (failure.Reason, session.Reopenings, transport.Calls.Count));
        isLost = false;
        Assert.NotNull((await session.PushAsync(Day(10), cancellationToken: Token)).Forecast);
        Assert.Equal(2, session.Reopenings);
    }

    [Fact]
    public async Task The_last_session_ends_the_shared_call()
    {
        var transport = new ScriptedStreamTransport((request, call) => call.Forecast(request));
        var (calls, streams) = (new ActiveCalls(), new SessionRegistry(transport, CancellationToken.None));
        var request = new SessionRequest("small", Bars(10));
        var first = await BarSession.OpenAsync(transport, streams, calls, transport, request, Token);
        var second = await BarSession.OpenAsync(transport, streams, calls, transport, request, Token);
        await first.DisposeAsync();
        await second.PushAsync(Day(10), cancellationToken: Token);
        Assert.Single(transport.Calls);
        await second.DisposeAsync();
        await transport.Calls[0].Completed;
        await using var third = await BarSession.OpenAsync(transport, streams, calls, transport, request, Token);
        Assert.Equal(2, transport.Calls.Count);
    }

    private static Task<List<PredictionResult>> ReadAsync(ScriptedStreamTransport transport, params PredictionRequest[] requests) =>
        PredictorStreams.PredictStreamAsync(transport, new ActiveCalls(), transport, RequestLists.Of(requests), Token).ReadAsync(Token);

    private static Task<IBarSession> OpenAsync(ScriptedStreamTransport transport, int days)
    {
        var streams = new SessionRegistry(transport, CancellationToken.None);
        return BarSession.OpenAsync(transport, streams, new ActiveCalls(), transport, new SessionRequest("small", Bars(days)), Token);
    }

    /// <summary>Returns a transport with short timeouts.</summary>
    private static ScriptedStreamTransport Hasty(Action<V1.PredictStreamRequest, ScriptedStreamTransport.ScriptedCall> answer, bool ends = true)
    {
        var transport = new ScriptedStreamTransport(answer);
        var settings = transport.Settings with { Timeout = TimeSpan.FromSeconds(0.5), ResponseGrace = TimeSpan.FromSeconds(0.1) };
        return new ScriptedStreamTransport(answer) { Settings = settings, EndsCalls = ends };
    }

    private static IEnumerable<DateOnly> Days(int first, int end) => Enumerable.Range(first, end - first).Select(day => new DateOnly(2013, 7, 1).AddDays(day));

    private static BarPanel Day(int day) => Of(Days(day, day + 1), day);

    private static BarPanel Bars(int count) => Of(Days(0, count), 0);

    /// <summary>Returns bars whose closes increase by day.</summary>
    private static BarPanel Of(IEnumerable<DateOnly> days, int first)
    {
        DateOnly[] sessions = [.. days];
        double[] column = [.. sessions.Select((_, index) => first + index + 1.0)];
        return new BarPanel { Symbols = ["A"], Sessions = sessions, Open = column, High = column, Low = column, Close = column, Volume = column };
    }
}
