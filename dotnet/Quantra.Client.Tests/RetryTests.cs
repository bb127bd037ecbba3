using System.Net;
using System.Net.Sockets;

namespace Quantra.Client.Tests;

/// <summary>Which calls a client retries.</summary>
public sealed class RetryTests(PredictorFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(fixture.PathOf("bars.csv")).Select("AAPL"));

    [Theory]
    [InlineData(3, true)]
    [InlineData(4, false)]
    public async Task A_late_server_answers_within_the_allowed_attempts(int refused, bool answers)
    {
        var server = new LateServer(fixture.Address, refused);
        var options = new QuantraClientOptions { MaxAttempts = 4, ConfigureHandler = server.Replace };
        await using var client = new QuantraClient(fixture.Address, options);
        var asked = await Record.ExceptionAsync(() => client.PredictAsync(Request, Token));
        Assert.Equal(answers ? null : QuantraReason.Unavailable, (asked as QuantraException)?.Reason);
        Assert.Equal(4, server.Connections);
    }

    [Fact]
    public async Task One_attempt_means_no_retry()
    {
        var server = new LateServer(fixture.Address, int.MaxValue);
        await using var client = new QuantraClient(fixture.Address, new() { MaxAttempts = 1, ConfigureHandler = server.Replace });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal((QuantraReason.Unavailable, 1), (failure.Reason, server.Connections));
    }

    [Fact]
    public async Task Attempts_end_before_the_deadline_with_the_last_error()
    {
        var server = new LateServer(fixture.Address, int.MaxValue);
        var options = new QuantraClientOptions { MaxAttempts = 20, ConfigureHandler = server.Replace, Timeout = TimeSpan.FromSeconds(2) };
        await using var client = new QuantraClient(fixture.Address, options);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(QuantraReason.Unavailable, failure.Reason);
        Assert.InRange(server.Connections, 2, 19);
    }

    [Fact]
    public async Task A_truncated_response_is_retried()
    {
        await using var relay = new TcpRelay(fixture.Address, bytesOfFirst: 20_000);
        await using var client = new QuantraClient(relay.Address);
        var results = await client.PredictManyAsync(Enumerable.Repeat(Request, 200).ToArray(), Token);
        Assert.All(results, result => Assert.NotNull(result.Forecast));
    }

    [Fact]
    public async Task A_global_explanation_is_retried_before_its_first_message()
    {
        await using var relay = new TcpRelay(fixture.Address, bytesOfFirst: 1);
        await using var client = new QuantraClient(relay.Address);
        var last = await client.ExplainGlobalAsync(new GlobalExplanationRequest([Request], []), Token).LastAsync(Token);
        Assert.Equal((1, 1), (last.Done, last.Total));
    }

    [Fact]
    public async Task A_global_explanation_is_not_retried_after_its_first_message()
    {
        await using var relay = new TcpRelay(fixture.Address);
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
    public async Task Model_changes_are_not_retried()
    {
        var server = new LateServer(fixture.Address, 1);
        await using var client = new ModelAdminClient(fixture.Address, new() { ConfigureHandler = server.Replace });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.LoadAsync("small", Token));
        Assert.Equal((QuantraReason.Unavailable, 1), (failure.Reason, server.Connections));
    }

    [Fact]
    public async Task A_large_request_is_rejected_before_it_is_sent()
    {
        var server = new LateServer(fixture.Address, 0);
        await using var client = new QuantraClient(fixture.Address, new() { MaxRequestBytes = 1000, ConfigureHandler = server.Replace });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal((QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge), (failure.Code, failure.Reason));
        Assert.Equal(("1000", 0), (failure.Metadata["most"], server.Connections));
        Assert.False(failure.Error.IsTransient);
    }

    [Fact]
    public async Task A_request_too_large_for_the_server_is_not_retried()
    {
        var many = Enumerable.Repeat(Request, 4000).ToArray();
        using var seen = new TelemetryRecorder();
        await using var client = new QuantraClient(fixture.Address, new() { MaxRequestBytes = 1 << 30 });
        var failure = await Assert.ThrowsAsync<QuantraException>(async () =>
        {
            await foreach (var known in client.ExplainGlobalAsync(new GlobalExplanationRequest(many, []), Token)) // always a single call
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
    public void Transient_errors_have_a_retry_delay(QuantraStatus code, string reason, string? after, bool isTransient)
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
    public void An_invalid_retry_delay_is_ignored(string after)
    {
        var metadata = new Dictionary<string, string> { ["retry_after_ms"] = after };
        Assert.Null(new QuantraError(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, "no", metadata).RetryAfter);
    }

    /// <summary>A server that refuses a number of connections before it accepts one.</summary>
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
