using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>What no real predictor of this version says, and what it says at moments that no test can choose.</summary>
public sealed class ScriptedStreamTests
{
    private static readonly QuantraException Gone = new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "gone").ToException();

    private static readonly PredictionRequest Request = new("small", Bars(3));

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task An_id_can_be_used_again_once_its_result_was_read_and_not_before()
    {
        (V1.PredictStreamRequest Request, ScriptedDoor.Talk Talk)? first = null;
        var (arrived, read) = (new TaskCompletionSource(), new SemaphoreSlim(0));
        var door = new ScriptedDoor((request, talk) =>
        {
            if (first is not null)
                talk.Forecast(request);
            first ??= (request, talk);
            arrived.TrySetResult();
        });
        var results = new List<PredictionResult>();
        await foreach (var result in PredictorStreams.PredictStreamAsync(door, new CallsUnderWay(), door, TwiceAsync(), Token))
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
            first!.Value.Talk.Forecast(first.Value.Request);
            await read.WaitAsync(Token);
            yield return Request with { RequestId = "same" };
        }
    }

    [Fact]
    public async Task A_queue_that_was_full_is_asked_again()
    {
        var times = 0;
        var door = new ScriptedDoor((request, talk) =>
        {
            if (++times < 4)
                talk.Error(request, QuantraReason.QueueFull, QuantraStatus.ResourceExhausted);
            else
                talk.Forecast(request);
        });
        Assert.NotNull(Assert.Single(await ReadAsync(door, Request)).Forecast);
        Assert.Equal((4, 1), (times, door.Talks.Count));
    }

    [Fact]
    public async Task A_queue_that_stays_full_is_the_result_after_as_many_attempts_as_are_allowed()
    {
        var door = new ScriptedDoor((request, talk) => talk.Error(request, QuantraReason.QueueFull, QuantraStatus.ResourceExhausted));
        Assert.Equal(QuantraReason.QueueFull, Assert.Single(await ReadAsync(door, Request)).Error?.Reason);
        Assert.Equal(4, door.Talks[0].Sent.Count);
    }

    [Fact]
    public async Task A_call_that_breaks_time_and_again_without_an_answer_is_given_up()
    {
        var door = new ScriptedDoor((_, talk) => talk.End(Gone));
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(door, Request));
        Assert.Equal((QuantraReason.Unavailable, 4), (failure.Reason, door.Talks.Count));
    }

    [Fact]
    public async Task A_call_that_breaks_after_each_answer_is_never_given_up()
    {
        var door = new ScriptedDoor((request, talk) =>
        {
            talk.Forecast(request);
            talk.End(Gone);
        });
        var results = await ReadAsync(door, [.. Enumerable.Repeat(Request, 6)]);
        Assert.Equal(6, results.Count(result => result.Forecast is not null));
        Assert.InRange(door.Talks.Count, 6, 7);
    }

    [Fact]
    public async Task A_token_that_was_replaced_is_asked_for_anew_and_one_that_never_was_good_is_told()
    {
        var refusal = new QuantraError(QuantraStatus.Unauthenticated, QuantraReason.Unauthenticated, "who?").ToException();
        var replaced = new ScriptedDoor((request, talk) =>
        {
            if (talk.Sent.Count > 1 && talk.Number == 0)
                talk.End(refusal);
            else
                talk.Forecast(request);
        });
        Assert.Equal(2, (await ReadAsync(replaced, Request, Request)).Count(result => result.Forecast is not null));
        Assert.Equal([QuantraReason.Unauthenticated], replaced.Reopenings);
        var unknown = new ScriptedDoor((_, talk) => talk.End(refusal));
        Assert.Equal(refusal.Error, (await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(unknown, Request))).Error);
        Assert.Single(unknown.Talks);
    }

    [Fact]
    public async Task A_predictor_that_falls_silent_is_DEADLINE_EXCEEDED()
    {
        var door = Hasty((_, _) => { });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(door, Request));
        Assert.Equal((QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded), (failure.Code, failure.Reason));
        Assert.StartsWith("no answer from the script within 0.6 s", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_predictor_that_does_not_end_the_call_keeps_nobody_waiting()
    {
        var door = Hasty((request, talk) => talk.Forecast(request), ends: false);
        Assert.NotNull(Assert.Single(await ReadAsync(door, Request)).Forecast);
    }

    [Fact]
    public async Task Each_request_says_how_much_time_is_left()
    {
        var door = new ScriptedDoor((request, talk) =>
        {
            if (talk.Number == 0)
                talk.End(Gone);
            else
                talk.Forecast(request);
        });
        await ReadAsync(door, Request);
        var (first, second) = (door.Talks[0].Sent[0].TimeoutS, door.Talks[1].Sent[0].TimeoutS);
        Assert.InRange(first, 29, 30);
        Assert.InRange(second, 25, first - 0.05);
    }

    [Fact]
    public async Task A_newer_predictors_answer_is_the_error_of_its_request()
    {
        var door = new ScriptedDoor((request, talk) => talk.Say(request, request.RequestId switch
        {
            "0" => new(),
            "1" => new() { Ack = new() },
            "2" => new() { Forecast = new() { AsOfSession = 20139999 } },
            "3" => new() { Error = new() { Reason = "A_NEW_ONE", Code = 99 } },
            _ => new() { Forecast = new() },
        }));
        var results = await ReadAsync(door, [.. Enumerable.Repeat(Request, 5)]);
        string?[] reasons = [QuantraReason.Internal, QuantraReason.Internal, QuantraReason.Internal, "A_NEW_ONE", null];
        Assert.Equal(reasons, results.OrderBy(result => result.RequestId).Select(result => result.Error?.Reason));
        Assert.Contains("20139999", results.Single(result => result.RequestId == "2").Error!.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task An_answer_that_nobody_asked_for_and_a_call_that_ends_too_early_are_INTERNAL()
    {
        var strange = new ScriptedDoor((request, talk) => talk.Forecast(new() { RequestId = request.RequestId + "x" }));
        Assert.Equal(QuantraReason.Internal, (await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(strange, Request))).Reason);
        var brief = new ScriptedDoor((_, talk) => talk.End());
        Assert.Equal(QuantraReason.Internal, (await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(brief, Request))).Reason);
    }

    [Fact]
    public async Task A_session_whose_model_reads_more_than_is_kept_must_be_opened_anew()
    {
        var lost = false;
        var door = new ScriptedDoor((request, talk) =>
        {
            if (lost && talk.Number == 0)
                talk.End(Gone);
            else
                talk.Forecast(request);
        })
        { BarsNeeded = 3 };
        await using var session = await OpenAsync(door, 10);
        (lost, door.BarsNeeded) = (true, 5);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(Day(10), cancellationToken: Token));
        Assert.Equal((QuantraStatus.FailedPrecondition, QuantraReason.Resubscribe), (failure.Code, failure.Reason));
        Assert.Equal(("4", "5", 0), (failure.Metadata["have"], failure.Metadata["need"], session.Reopenings));
    }

    [Fact]
    public async Task A_session_keeps_as_many_bars_as_its_model_reads_and_one()
    {
        var lost = false;
        var door = new ScriptedDoor((request, talk) =>
        {
            if (lost && talk.Number == 0)
                talk.End(Gone);
            else
                talk.Forecast(request);
        })
        { BarsNeeded = 3 };
        await using var session = await OpenAsync(door, 10);
        for (var day = 10; day < 20; day++)
            await session.PushAsync(Day(day), cancellationToken: Token);
        lost = true;
        await session.PushAsync(Day(20), cancellationToken: Token);
        var again = door.Talks[1].Sent[0].Open.Instance.Bars;
        Assert.Equal(Days(16, 20).Select(day => day.Day), again.SessionYyyymmdd.Select(session => session % 100));
        Assert.Equal([17.0, 18, 19, 20], ArrayBytes.Doubles(again.Close));
    }

    [Fact]
    public async Task A_push_without_an_answer_is_DEADLINE_EXCEEDED_and_the_next_one_opens_the_session_again()
    {
        var isSilent = false;
        var door = Hasty((request, talk) =>
        {
            if (!isSilent)
                talk.Forecast(request);
        });
        await using var session = await OpenAsync(door, 10);
        isSilent = true;
        var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(Day(10), cancellationToken: Token));
        Assert.Equal(QuantraReason.DeadlineExceeded, failure.Reason);
        isSilent = false;
        Assert.NotNull((await session.PushAsync(Day(10), cancellationToken: Token)).Forecast);
        Assert.Equal((1, QuantraReason.DeadlineExceeded), (session.Reopenings, session.LastLoss?.Reason));
        await door.Talks[0].Ended;
        string[][] actions = [.. door.Talks.Select(talk => talk.Sent.Select(request => request.ActionCase.ToString()).ToArray())];
        Assert.Equal([["Open", "Push", "Close"], ["Open", "Push"]], actions); // nobody knows whether it was taken
        Assert.NotEqual(door.Talks[0].Sent[0].Open.SessionId, door.Talks[1].Sent[0].Open.SessionId);
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task A_push_that_is_cancelled_is_told_as_it_was_taken_or_not(bool isTaken)
    {
        var held = new TaskCompletionSource();
        V1.PredictStreamRequest? pushed = null;
        var door = new ScriptedDoor((request, talk) =>
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
                    talk.Forecast(pushed);
                else
                    talk.Error(pushed, QuantraReason.Cancelled, QuantraStatus.Cancelled);
            }
            else
            {
                talk.Forecast(request);
            }
        });
        await using var session = await OpenAsync(door, 10);
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
    public async Task A_push_that_is_cancelled_and_never_answered_is_given_up()
    {
        var held = new TaskCompletionSource();
        var isSilent = false;
        var door = Hasty((request, talk) =>
        {
            if (!isSilent)
                talk.Forecast(request);
            else if (request.ActionCase == V1.PredictStreamRequest.ActionOneofCase.Push)
                held.SetResult();
        });
        await using var session = await OpenAsync(door, 10);
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
    public async Task A_session_that_is_lost_once_more_within_a_push_is_told()
    {
        var isLost = false;
        var door = new ScriptedDoor((request, talk) =>
        {
            if (isLost && request.ActionCase == V1.PredictStreamRequest.ActionOneofCase.Push)
                talk.End(Gone);
            else
                talk.Forecast(request);
        });
        await using var session = await OpenAsync(door, 10);
        isLost = true;
        var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(Day(10), cancellationToken: Token));
        Assert.Equal((QuantraReason.Unavailable, 1, 2), (failure.Reason, session.Reopenings, door.Talks.Count));
        isLost = false;
        Assert.NotNull((await session.PushAsync(Day(10), cancellationToken: Token)).Forecast);
        Assert.Equal(2, session.Reopenings);
    }

    [Fact]
    public async Task The_call_of_sessions_ends_with_the_last_of_them()
    {
        var door = new ScriptedDoor((request, talk) => talk.Forecast(request));
        var (calls, streams) = (new CallsUnderWay(), new SessionStreams(door, CancellationToken.None));
        var request = new SessionRequest("small", Bars(10));
        var first = await BarSession.OpenAsync(door, streams, calls, door, request, Token);
        var second = await BarSession.OpenAsync(door, streams, calls, door, request, Token);
        await first.DisposeAsync();
        await second.PushAsync(Day(10), cancellationToken: Token);
        Assert.Single(door.Talks);
        await second.DisposeAsync();
        await door.Talks[0].Ended;
        await using var third = await BarSession.OpenAsync(door, streams, calls, door, request, Token);
        Assert.Equal(2, door.Talks.Count);
    }

    private static Task<List<PredictionResult>> ReadAsync(ScriptedDoor door, params PredictionRequest[] requests) =>
        PredictorStreams.PredictStreamAsync(door, new CallsUnderWay(), door, Requests.Of(requests), Token).ReadAsync(Token);

    private static Task<IBarSession> OpenAsync(ScriptedDoor door, int days)
    {
        var streams = new SessionStreams(door, CancellationToken.None);
        return BarSession.OpenAsync(door, streams, new CallsUnderWay(), door, new SessionRequest("small", Bars(days)), Token);
    }

    /// <summary>A door behind which nobody waits long.</summary>
    private static ScriptedDoor Hasty(Action<V1.PredictStreamRequest, ScriptedDoor.Talk> answer, bool ends = true)
    {
        var door = new ScriptedDoor(answer);
        var settings = door.Settings with { Timeout = TimeSpan.FromSeconds(0.5), Silence = TimeSpan.FromSeconds(0.1) };
        return new ScriptedDoor(answer) { Settings = settings, EndsCalls = ends };
    }

    private static IEnumerable<DateOnly> Days(int first, int end) => Enumerable.Range(first, end - first).Select(day => new DateOnly(2013, 7, 1).AddDays(day));

    private static BarPanel Day(int day) => Of(Days(day, day + 1), day);

    private static BarPanel Bars(int count) => Of(Days(0, count), 0);

    /// <summary>Closes count up from the number of the first day.</summary>
    private static BarPanel Of(IEnumerable<DateOnly> days, int first)
    {
        DateOnly[] sessions = [.. days];
        double[] column = [.. sessions.Select((_, place) => first + place + 1.0)];
        return new BarPanel { Symbols = ["A"], Sessions = sessions, Open = column, High = column, Low = column, Close = column, Volume = column };
    }
}
