using System.Net;
using System.Net.Sockets;

namespace Quantra.Client.Tests;

/// <summary>What a client tries again, and what it does not.</summary>
public sealed class RetryTests(Doors doors)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(doors.PathOf("bars.csv")).Select("AAPL"));

    [Theory]
    [InlineData(3, true)]
    [InlineData(4, false)]
    public async Task A_server_that_comes_late_answers_within_as_many_attempts_as_are_allowed(int refused, bool answers)
    {
        var door = new LateServer(doors.Address, refused);
        var options = new QuantraClientOptions { MaxAttempts = 4, ConfigureHandler = door.Replace };
        await using var client = new QuantraClient(doors.Address, options);
        var asked = await Record.ExceptionAsync(() => client.PredictAsync(Request, Token));
        Assert.Equal(answers ? null : QuantraReason.Unavailable, (asked as QuantraException)?.Reason);
        Assert.Equal(4, door.Connections);
    }

    [Fact]
    public async Task One_attempt_is_one()
    {
        var door = new LateServer(doors.Address, int.MaxValue);
        await using var client = new QuantraClient(doors.Address, new() { MaxAttempts = 1, ConfigureHandler = door.Replace });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal((QuantraReason.Unavailable, 1), (failure.Reason, door.Connections));
    }

    [Fact]
    public async Task Attempts_end_before_the_deadline_of_the_call_and_tell_why_they_failed()
    {
        var door = new LateServer(doors.Address, int.MaxValue);
        var options = new QuantraClientOptions { MaxAttempts = 20, ConfigureHandler = door.Replace, Timeout = TimeSpan.FromSeconds(2) };
        await using var client = new QuantraClient(doors.Address, options);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(QuantraReason.Unavailable, failure.Reason);
        Assert.InRange(door.Connections, 2, 19);
    }

    [Fact]
    public async Task An_answer_that_breaks_off_in_the_middle_is_asked_for_again()
    {
        await using var relay = new Relay(doors.Address, bytesOfFirst: 20_000);
        await using var client = new QuantraClient(relay.Address);
        var results = await client.PredictManyAsync(Enumerable.Repeat(Request, 200).ToArray(), Token);
        Assert.All(results, result => Assert.NotNull(result.Forecast));
    }

    [Fact]
    public async Task A_global_explanation_is_asked_for_again_as_long_as_nothing_of_it_has_come()
    {
        await using var relay = new Relay(doors.Address, bytesOfFirst: 1);
        await using var client = new QuantraClient(relay.Address);
        var last = await client.ExplainGlobalAsync(new GlobalExplanationRequest([Request], []), Token).LastAsync(Token);
        Assert.Equal((1, 1), (last.Done, last.Total));
    }

    [Fact]
    public async Task A_global_explanation_of_which_something_has_come_does_not_begin_again()
    {
        await using var relay = new Relay(doors.Address);
        await using var client = new QuantraClient(relay.Address);
        var many = new GlobalExplanationRequest(Enumerable.Repeat(Request, 100).ToArray(), []);
        var done = new List<int>();
        var failure = await Assert.ThrowsAsync<QuantraException>(async () =>
        {
            await foreach (var known in client.ExplainGlobalAsync(many, Token))
            {
                done.Add(known.Done);
                relay.Break();
            }
        });
        Assert.Equal(QuantraReason.Unavailable, failure.Reason);
        Assert.Equal(done.Distinct().Order(), done);
    }

    [Fact]
    public async Task A_change_of_models_is_not_tried_again()
    {
        var door = new LateServer(doors.Address, 1);
        await using var client = new ModelAdminClient(doors.Address, new() { ConfigureHandler = door.Replace });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.LoadAsync("small", Token));
        Assert.Equal((QuantraReason.Unavailable, 1), (failure.Reason, door.Connections));
    }

    [Fact]
    public async Task A_request_that_is_too_large_is_refused_before_it_is_sent()
    {
        var door = new LateServer(doors.Address, 0);
        await using var client = new QuantraClient(doors.Address, new() { MaxRequestBytes = 1000, ConfigureHandler = door.Replace });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal((QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge), (failure.Code, failure.Reason));
        Assert.Equal(("1000", 0), (failure.Metadata["most"], door.Connections));
        Assert.False(failure.Error.IsTransient);
    }

    [Fact]
    public async Task What_the_server_finds_too_large_is_not_tried_again()
    {
        var many = Enumerable.Repeat(Request, 4000).ToArray();
        using var seen = new SeenCalls();
        await using var client = new QuantraClient(doors.Address, new() { MaxRequestBytes = 1 << 30 });
        var failure = await Assert.ThrowsAsync<QuantraException>(async () =>
        {
            await foreach (var known in client.ExplainGlobalAsync(new GlobalExplanationRequest(many, []), Token)) // in one call, whatever its size
                Assert.Fail($"{known}");
        });
        Assert.Equal(QuantraReason.RequestTooLarge, failure.Reason);
        Assert.Equal(0, seen.Retries);
    }

    [Theory]
    [InlineData(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, null, true)]
    [InlineData(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, "250", true)]
    [InlineData(QuantraStatus.Unavailable, QuantraReason.Unavailable, null, true)]
    [InlineData(QuantraStatus.Unavailable, QuantraReason.TryAgain, null, true)]
    [InlineData(QuantraStatus.Unavailable, "OF_A_NEWER_SERVER", null, true)]
    [InlineData(QuantraStatus.ResourceExhausted, "OF_A_NEWER_SERVER", "250", true)]
    [InlineData(QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge, null, false)]
    [InlineData(QuantraStatus.InvalidArgument, QuantraReason.TooFewBars, null, false)]
    [InlineData(QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded, null, false)]
    public void Who_may_come_again_is_told_and_when(QuantraStatus code, string reason, string? after, bool isTransient)
    {
        var metadata = after is null ? [] : new Dictionary<string, string> { ["retry_after_ms"] = after };
        var failure = new QuantraError(code, reason, "no", metadata).ToException();
        Assert.Equal((isTransient, after is null ? null : TimeSpan.FromSeconds(0.25)), (failure.IsTransient, failure.RetryAfter));
    }

    [Theory]
    [InlineData("soon")]
    [InlineData("-1")]
    [InlineData("nan")]
    [InlineData("1e300")]
    public void A_time_to_wait_that_is_none_is_left_out(string after)
    {
        var metadata = new Dictionary<string, string> { ["retry_after_ms"] = after };
        Assert.Null(new QuantraError(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, "no", metadata).RetryAfter);
    }

    /// <summary>A server that refuses so many connections before it takes one.</summary>
    private sealed class LateServer(Uri address, int refused)
    {
        private int _connections;

        public int Connections => _connections;

        public void Replace(SocketsHttpHandler handler) => handler.ConnectCallback = async (_, cancelled) =>
        {
            if (Interlocked.Increment(ref _connections) <= refused)
                throw new SocketException((int)SocketError.ConnectionRefused);
            var socket = new Socket(SocketType.Stream, ProtocolType.Tcp);
            await socket.ConnectAsync(IPAddress.Loopback, address.Port, cancelled);
            return new NetworkStream(socket, ownsSocket: true);
        };
    }
}
