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
    public async Task Attempts_end_at_the_deadline_of_the_call()
    {
        var door = new LateServer(doors.Address, int.MaxValue);
        var options = new QuantraClientOptions { MaxAttempts = 20, ConfigureHandler = door.Replace, Timeout = TimeSpan.FromSeconds(0.5) };
        await using var client = new QuantraClient(doors.Address, options);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(QuantraReason.DeadlineExceeded, failure.Reason);
        Assert.InRange(door.Connections, 1, 19);
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
    public async Task More_calls_than_a_server_takes_at_once_are_all_answered()
    {
        var request = Request;
        await using var client = new QuantraClient(doors.Address);
        var forecasts = await Task.WhenAll(Enumerable.Range(0, 1500).Select(_ => client.PredictAsync(request, Token)));
        Assert.All(forecasts, forecast => Assert.Equal(forecasts[0].ForecastId, forecast.ForecastId));
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
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictManyAsync(many, Token));
        Assert.Equal(QuantraReason.RequestTooLarge, failure.Reason);
        Assert.Equal(0, seen.Retries);
    }

    [Fact]
    public void Who_may_come_again_is_told_and_when()
    {
        var after = new Dictionary<string, string> { ["retry_after_ms"] = "250" };
        var full = new QuantraError(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, "9 calls wait", after);
        Assert.Equal((true, TimeSpan.FromSeconds(0.25)), (full.IsTransient, full.RetryAfter));
        var gone = new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "nobody answers");
        Assert.Equal((true, null), (gone.IsTransient, gone.RetryAfter));
        var wrong = new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.TooFewBars, "1 bar");
        Assert.Equal((false, null), (wrong.IsTransient, wrong.RetryAfter));
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
