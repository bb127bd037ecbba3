namespace Quantra.Client.Tests;

/// <summary>Sessions that lose their connection or server and are reopened with their history.</summary>
public sealed class LostSessionTests : IAsyncLifetime
{
    private readonly PredictorFixture _fixture;
    private readonly TcpRelay _relay;
    private readonly LogRecorder _log = new();
    private readonly QuantraClient _client;

    public LostSessionTests(PredictorFixture fixture)
    {
        ArgumentNullException.ThrowIfNull(fixture);
        _fixture = fixture;
        _relay = new TcpRelay(fixture.Address);
        _client = new QuantraClient(_relay.Address, new QuantraClientOptions { LoggerFactory = _log });
    }

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    public ValueTask InitializeAsync() => ValueTask.CompletedTask;

    public async ValueTask DisposeAsync()
    {
        await _client.DisposeAsync();
        await _relay.DisposeAsync();
        _log.Dispose();
    }

    [Theory]
    [InlineData("small")]
    [InlineData("graph")]
    public async Task Pushes_return_correct_forecasts_despite_lost_connections(string model)
    {
        var (panel, before, days) = SessionData.Split(_fixture, 3);
        await using var session = await _client.OpenSessionAsync(new SessionRequest(model, before), Token);
        foreach (var (place, day) in days.Index())
        {
            _relay.Break();
            var pushed = await session.PushAsync(panel.Between(day, day), cancellationToken: Token);
            Assert.Equal(await _fixture.Grpc.PredictAsync(new(model, panel.Until(day)), Token), pushed.GetForecast());
            Assert.Equal((place + 1, QuantraReason.Unavailable), (session.Reopenings, session.LastLoss?.Reason));
        }

        Assert.Contains(_log.Lines, line => line.Contains($"session {session.SessionId} of '{model}' was lost (UNAVAILABLE) and reopened", StringComparison.Ordinal));
    }

    [Fact]
    public async Task A_reopened_session_still_waits_for_the_missing_symbols()
    {
        var (panel, before, days) = SessionData.Split(_fixture, 2);
        await using var session = await _client.OpenSessionAsync(new SessionRequest("small", before), Token);
        foreach (var day in days)
        {
            var today = panel.Between(day, day);
            Assert.Equal(["AAPL"], (await session.PushAsync(today.Select("IBM"), cancellationToken: Token)).WaitsFor);
            _relay.Break();
            Assert.Equal(["AAPL"], (await session.PushAsync(today.Select("IBM"), cancellationToken: Token)).WaitsFor);
            _relay.Break();
            var pushed = await session.PushAsync(today.Select("AAPL"), cancellationToken: Token);
            Assert.Equal(await _fixture.Grpc.PredictAsync(new("small", panel.Until(day)), Token), pushed.GetForecast());
        }
    }

    [Fact]
    public async Task A_flushed_day_stays_flushed_after_reopening()
    {
        var (panel, before, days) = SessionData.Split(_fixture, 1);
        var today = panel.Between(days[0], days[0]);
        await using var session = await _client.OpenSessionAsync(new SessionRequest("small", before), Token);
        var flushed = await session.PushAsync(today.Select("IBM"), flush: true, cancellationToken: Token);
        _relay.Break();
        Assert.Equal(flushed, await session.PushAsync(today.Select("IBM"), cancellationToken: Token));
        _relay.Break();
        var late = await session.PushAsync(today.Select("AAPL"), cancellationToken: Token);
        Assert.Equal(await _fixture.Grpc.PredictAsync(new("small", panel), Token), late.GetForecast());
    }

    [Fact]
    public async Task A_session_continues_after_a_day_without_trades()
    {
        var (panel, before, days) = SessionData.Split(_fixture, 3);
        await using var session = await _client.OpenSessionAsync(new SessionRequest("small", before), Token);
        var nothing = new PushResult(null, []);
        Assert.Equal(nothing, await session.PushAsync(Empty(panel.Between(days[0], days[0])), cancellationToken: Token));
        _relay.Break();
        Assert.Equal(nothing, await session.PushAsync(Empty(panel.Between(days[1], days[1])), cancellationToken: Token));
        _relay.Break();
        var pushed = await session.PushAsync(panel.Between(days[2], days[2]), cancellationToken: Token);
        Assert.Equal(await _fixture.Grpc.PredictAsync(new("small", WithoutBars(panel, days[..2])), Token), pushed.GetForecast());
    }

    [Fact]
    public async Task A_session_continues_after_a_correction_removes_the_only_bars_of_a_day()
    {
        var (panel, before, days) = SessionData.Split(_fixture, 2);
        await using var session = await _client.OpenSessionAsync(new SessionRequest("small", before), Token);
        var first = panel.Between(days[0], days[0]);
        Assert.NotNull((await session.PushAsync(first, cancellationToken: Token)).Forecast);
        Assert.Null((await session.PushAsync(Empty(first), cancellationToken: Token)).Forecast);
        _relay.Break();
        var pushed = await session.PushAsync(panel.Between(days[1], days[1]), cancellationToken: Token);
        Assert.Equal(await _fixture.Grpc.PredictAsync(new("small", WithoutBars(panel, days[..1])), Token), pushed.GetForecast());
        Assert.Equal(1, session.Reopenings);
    }

    [Fact]
    public async Task Future_covariates_are_sent_again_after_reopening()
    {
        var before = SessionData.WithCovariates(_fixture, ..^3).ToSession();
        await using var lost = await _client.OpenSessionAsync(before, Token);
        await using var kept = await _fixture.Grpc.OpenSessionAsync(before, Token);
        var (third, second, last) = (Day(^3..^2), Day(^2..^1), Day(^1..));
        await BothAsync(third.Of(1));
        await BothAsync(third.Of(0, 2));
        await BothAsync(second.Of(1), flush: true); // the other symbols keep what was sent ahead
        await BothAsync(last.Of(0));
        await BothAsync(last.Of(1, 2));
        await BothAsync(last);
        Assert.Equal((6, 0), (lost.Reopenings, kept.Reopenings));

        PredictionRequest Day(Range sessions) => SessionData.WithCovariates(_fixture, sessions);

        async Task BothAsync(PredictionRequest day, bool flush = false)
        {
            _relay.Break();
            var wanted = await kept.PushAsync(day.Bars!, day.Covariates, flush, Token);
            Assert.Equal(wanted, await lost.PushAsync(day.Bars!, day.Covariates, flush, Token));
        }
    }

    [Fact]
    public async Task Interrupted_pushes_are_repeated_in_order()
    {
        var (panel, before, days) = SessionData.Split(_fixture, 10);
        await using var session = await _client.OpenSessionAsync(new SessionRequest("small", before), Token);
        var pushes = days.Select(day => session.PushAsync(panel.Between(day, day), cancellationToken: Token)).ToArray();
        foreach (var (place, push) in pushes.Index())
        {
            if (place % 5 == 0)
                _relay.Break();
            Assert.Equal(days[place], (await push).GetForecast().AsOf);
        }

        Assert.Equal(await _fixture.Grpc.PredictAsync(new("small", panel), Token), (await pushes[^1]).GetForecast());
    }

    [Fact]
    public async Task Sessions_share_one_call_again_after_a_loss()
    {
        var (panel, before, days) = SessionData.Split(_fixture, 1);
        var sessions = await Task.WhenAll(Enumerable.Range(0, 20).Select(_ => _client.OpenSessionAsync(new SessionRequest("small", before), Token)));
        _relay.Break();
        var pushed = await Task.WhenAll(sessions.Select(session => session.PushAsync(panel.Between(days[0], days[0]), cancellationToken: Token)));
        Assert.All(pushed, result => Assert.Equal(pushed[0].GetForecast().ForecastId, result.GetForecast().ForecastId));
        Assert.All(sessions, session => Assert.Equal(1, session.Reopenings));
        foreach (var session in sessions)
            await session.DisposeAsync();
    }

    [Fact]
    public async Task The_next_push_retries_a_failed_reopening()
    {
        var (panel, before, days) = SessionData.Split(_fixture, 1);
        var refused = false;
        await using var client = new QuantraClient(_relay.Address, new QuantraClientOptions
        {
            MaxAttempts = 2,
            Token = _ => refused ? throw new InvalidOperationException("no token today") : default,
        });
        await using var session = await client.OpenSessionAsync(new SessionRequest("small", before), Token);
        refused = true;
        _relay.Break();
        var failure = await Assert.ThrowsAsync<InvalidOperationException>(() => session.PushAsync(panel.Last(1), cancellationToken: Token));
        Assert.Equal("no token today", failure.Message);
        refused = false;
        var pushed = await session.PushAsync(panel.Last(1), cancellationToken: Token);
        Assert.Equal(await _fixture.Grpc.PredictAsync(new("small", panel), Token), pushed.GetForecast());
        Assert.Equal(1, session.Reopenings);
    }

    [Fact]
    public async Task A_lost_session_can_be_disposed()
    {
        var session = await _client.OpenSessionAsync(new SessionRequest("small", SessionData.Split(_fixture, 1).Before), Token);
        _relay.Break();
        await session.DisposeAsync();
    }

    private static BarPanel Empty(BarPanel bars) => WithoutBars(bars, bars.Sessions.ToArray());

    /// <summary>Returns the panel without any bar on these days.</summary>
    private static BarPanel WithoutBars(BarPanel panel, DateOnly[] days)
    {
        var sessions = panel.Sessions.ToArray();
        return panel with
        {
            Open = Column(panel.Open),
            High = Column(panel.High),
            Low = Column(panel.Low),
            Close = Column(panel.Close),
            Volume = Column(panel.Volume),
            AdjustedClose = Column(panel.AdjustedClose),
        };

        double[] Column(ReadOnlyMemory<double> column) =>
            [.. column.ToArray().Select((value, place) => days.Contains(sessions[place % sessions.Length]) ? double.NaN : value)];
    }
}
