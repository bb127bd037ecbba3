using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>Failures of calls, of the server, and of the connection.</summary>
public sealed class GrpcFaultTests(PredictorFixture fixture) : FaultTests(fixture)
{
    private static readonly QuantraClientOptions Once = new()
    {
        MaxAttempts = 1,
        PingInterval = TimeSpan.FromSeconds(1),
        PingTimeout = TimeSpan.FromSeconds(1),
    };

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    protected override IStockPredictor Predictor => Fixture.Grpc;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(Fixture.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task The_first_call_after_a_server_was_killed_and_has_restarted_is_answered()
    {
        var server = await PythonServer.StartAsync(Fixture.OneModel);
        await using var client = new QuantraClient(server.Address, Once);
        await client.PredictAsync(Request, Token);
        await server.DisposeAsync();
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(QuantraReason.Unavailable, failure.Reason);
        await using var again = await PythonServer.StartAsync(Fixture.OneModel, "--listen", server.Address.Authority);
        Assert.NotNull(await client.PredictAsync(Request, Token));
    }

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task A_call_to_a_frozen_server_is_UNAVAILABLE_and_the_next_is_answered_after_it_resumes()
    {
        Assert.SkipWhen(OperatingSystem.IsWindows(), "Windows cannot stop a process and let it go on");
        await using var client = new QuantraClient(Fixture.Address, Once);
        await client.PredictAsync(Request, Token);
        await Fixture.Server.SignalAsync("STOP");
        var failure = await Record.ExceptionAsync(() => client.PredictAsync(Request, Token));
        await Fixture.Server.SignalAsync("CONT");
        Assert.Equal(QuantraReason.Unavailable, Assert.IsType<QuantraException>(failure).Reason);
        Assert.NotNull(await client.PredictAsync(Request, Token));
    }

    [Fact]
    public async Task A_call_that_is_being_sent_can_be_cancelled()
    {
        await using var relay = new TcpRelay(Fixture.Address);
        await using var client = new QuantraClient(relay.Address);
        await client.PredictManyAsync([.. Enumerable.Repeat(Request, 10)], Token); // so that the client knows the model
        relay.FallSilent();
        using var source = new CancellationTokenSource();
        var sending = client.PredictManyAsync([.. Enumerable.Repeat(Request, 1000)], source.Token);
        while (relay.Swallowed < 32 << 10) // half of the initial HTTP/2 window of 64 KiB
            await Task.Yield();
        await source.CancelAsync();
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => sending);
        Assert.Equal(source.Token, failure.CancellationToken);
    }

    [Fact]
    public async Task The_limiter_makes_calls_wait_within_their_timeout()
    {
        var limiter = new CallLimiter();
        var taken = await Task.WhenAll(Enumerable.Range(0, 256).Select(_ => TakeAsync(limiter, isExplanation: false, 1000)));
        var explanations = await Task.WhenAll(Enumerable.Range(0, 4).Select(_ => TakeAsync(limiter, isExplanation: true, 1000)));
        foreach (var isExplanation in (bool[])[false, true])
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => TakeAsync(limiter, isExplanation, 1));
            Assert.Equal((QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded), (failure.Code, failure.Reason));
            Assert.Contains("earlier calls of this client", failure.Message, StringComparison.Ordinal);
        }

        var waiting = TakeAsync(limiter, isExplanation: true, 60_000);
        taken[0].Dispose();
        Assert.False(waiting.IsCompleted);
        explanations[0].Dispose();
        (await waiting).Dispose();
        await TakeAsync(limiter, isExplanation: false, 1000);
    }

    private static async Task<CallLimiter.Slot> TakeAsync(CallLimiter limiter, bool isExplanation, int milliseconds) =>
        await limiter.AcquireAsync(isExplanation, TimeSpan.FromMilliseconds(milliseconds), TimeSpan.FromMilliseconds(milliseconds), Token);
}
