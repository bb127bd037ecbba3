namespace Quantra.Client.Tests;

/// <summary>Sessions of every predictor: each push returns the forecast of all bars sent so far.</summary>
public abstract class SessionTests(PredictorFixture fixture)
{
    private const int Pushed = 5;

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    protected PredictorFixture Fixture => fixture;

    protected abstract IStockPredictor Predictor { get; }

    private (BarPanel Panel, BarPanel Before, DateOnly[] Days) Cut() => SessionData.Split(fixture, Pushed);

    protected abstract Task<IStockPredictor> OpenAsync();

    [Theory]
    [InlineData("small")]
    [InlineData("graph")]
    [InlineData("fitted")]
    public async Task Each_push_returns_the_forecast_of_all_bars_so_far(string model)
    {
        var (panel, before, days) = Cut();
        await using var session = await Predictor.OpenSessionAsync(new SessionRequest(model, before), Token);
        Assert.Equal(await Predictor.PredictAsync(new(model, before), Token), session.FirstForecast);
        Assert.Equal(["AAPL", "IBM"], session.Symbols);
        foreach (var day in days)
        {
            var pushed = await session.PushAsync(panel.Between(day, day), cancellationToken: Token);
            Assert.Equal(await Predictor.PredictAsync(new(model, panel.Until(day)), Token), pushed.GetForecast());
            Assert.Empty(pushed.WaitsFor);
        }

        Assert.Equal((0, null), (session.Reopenings, session.LastLoss));
    }

    [Fact]
    public async Task An_incomplete_day_names_the_missing_symbols()
    {
        var (panel, before, days) = Cut();
        await using var session = await Predictor.OpenSessionAsync(new SessionRequest("small", before), Token);
        foreach (var day in days)
        {
            var today = panel.Between(day, day);
            Assert.Equal(new PushResult(null, ["AAPL"]), await session.PushAsync(today.Select("IBM"), cancellationToken: Token));
            var pushed = await session.PushAsync(today.Select("AAPL"), cancellationToken: Token);
            Assert.Equal(await Predictor.PredictAsync(new("small", panel.Until(day)), Token), pushed.GetForecast());
        }
    }

    [Fact]
    public async Task A_flushed_day_does_not_wait_and_late_bars_get_a_new_forecast()
    {
        var (panel, before, days) = Cut();
        await using var session = await Predictor.OpenSessionAsync(new SessionRequest("small", before), Token);
        var today = panel.Between(days[0], days[0]);
        await session.PushAsync(today.Select("AAPL"), cancellationToken: Token);
        var flushed = (await session.FlushAsync(Token)).GetForecast();
        Assert.Equal("IBM", Assert.Single(flushed.Refusals).Key);
        var late = await session.PushAsync(today.Select("IBM"), cancellationToken: Token);
        Assert.Equal(await Predictor.PredictAsync(new("small", panel.Until(days[0])), Token), late.GetForecast());
        var tomorrow = await session.PushAsync(panel.Between(days[1], days[1]).Select("IBM"), flush: true, cancellationToken: Token);
        Assert.Equal("AAPL", Assert.Single(tomorrow.GetForecast().Refusals).Key);
    }

    [Fact]
    public async Task Covariates_are_pushed_with_the_bars()
    {
        var day = SessionData.WithCovariates(fixture, ^1..);
        await using var session = await Predictor.OpenSessionAsync(SessionData.WithCovariates(fixture, ..^1).ToSession(), Token);
        var pushed = await session.PushAsync(day.Bars!, day.Covariates, cancellationToken: Token);
        Assert.Equal(await Predictor.PredictAsync(SessionData.WithCovariates(fixture, ..), Token), pushed.GetForecast());
        var lacking = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(day.Bars!, cancellationToken: Token));
        Assert.Equal(QuantraReason.CovariateMissing, lacking.Reason);
    }

    [Fact]
    public async Task A_rejected_push_leaves_the_session_unchanged()
    {
        var (panel, before, days) = Cut();
        var (first, other) = (panel.Between(days[0], days[0]), panel.Select(["IBM"]) with { Symbols = ["FB"] });
        (BarPanel Bars, string Reason)[] bad =
        [
            (panel.Between(days[1], days[1]), QuantraReason.SessionGap),
            (before.Last(2).Until(before.Sessions.Span[^2]), QuantraReason.BarsInvalid),
            (panel.Between(days[0], days[1]), QuantraReason.BarsInvalid),
            (other.Between(days[0], days[0]), QuantraReason.BarsInvalid),
            (first with { AdjustedClose = default }, QuantraReason.BarsInvalid),
            (first with { Sessions = new[] { new DateOnly(2013, 3, 2) } }, QuantraReason.BarsInvalid),
            (Half(first), QuantraReason.Resubscribe),
        ];
        await using var session = await Predictor.OpenSessionAsync(new SessionRequest("small", before), Token);
        foreach (var (bars, reason) in bad)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => session.PushAsync(bars, cancellationToken: Token));
            Assert.Equal(reason, failure.Reason);
        }

        var unflushed = await Assert.ThrowsAsync<QuantraException>(() => session.FlushAsync(Token));
        Assert.Equal(QuantraReason.MalformedRequest, unflushed.Reason);
        var pushed = await session.PushAsync(first, cancellationToken: Token);
        Assert.Equal(await Predictor.PredictAsync(new("small", panel.Until(days[0])), Token), pushed.GetForecast());
        Assert.Equal(0, session.Reopenings);

        static BarPanel Half(BarPanel bars) => bars with
        {
            Open = Halved(bars.Open),
            High = Halved(bars.High),
            Low = Halved(bars.Low),
            Close = Halved(bars.Close),
            AdjustedClose = Halved(bars.AdjustedClose),
        };

        static double[] Halved(ReadOnlyMemory<double> column) => [.. column.ToArray().Select(value => value / 2)];
    }

    [Fact]
    public async Task Pushes_run_in_the_order_of_the_calls()
    {
        var (panel, before, days) = Cut();
        await using var session = await Predictor.OpenSessionAsync(new SessionRequest("small", before), Token);
        var pushed = await Task.WhenAll(days.Select(day => session.PushAsync(panel.Between(day, day), cancellationToken: Token)));
        foreach (var (day, result) in days.Zip(pushed))
            Assert.Equal(await Predictor.PredictAsync(new("small", panel.Until(day)), Token), result.GetForecast());
    }

    [Fact]
    public async Task A_cancelled_push_leaves_the_session_unchanged()
    {
        var (panel, before, days) = Cut();
        await using var session = await Predictor.OpenSessionAsync(new SessionRequest("small", before), Token);
        using var source = new CancellationTokenSource();
        var first = session.PushAsync(panel.Between(days[0], days[0]), cancellationToken: Token);
        var second = session.PushAsync(panel.Between(days[1], days[1]), cancellationToken: source.Token);
        await source.CancelAsync();
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => second);
        Assert.Equal(source.Token, failure.CancellationToken);
        Assert.Equal(days[0], (await first).GetForecast().AsOf);
        var again = await session.PushAsync(panel.Between(days[1], days[1]), cancellationToken: Token);
        Assert.Equal(await Predictor.PredictAsync(new("small", panel.Until(days[1])), Token), again.GetForecast());
    }

    [Fact]
    public async Task A_push_cancelled_at_any_moment_is_either_accepted_or_not()
    {
        var (panel, before, days) = Cut();
        await using var session = await Predictor.OpenSessionAsync(new SessionRequest("small", before), Token);
        foreach (var day in days)
        {
            using var source = new CancellationTokenSource();
            var push = session.PushAsync(panel.Between(day, day), cancellationToken: source.Token);
            var calls = Task.WhenAll(Enumerable.Range(0, day.Day % 5).Select(_ => Predictor.ListModelsAsync(Token)));
            await calls;
            await source.CancelAsync();
            await Record.ExceptionAsync(() => push);
            var again = await session.PushAsync(panel.Between(day, day), cancellationToken: Token);
            Assert.Equal(await Predictor.PredictAsync(new("small", panel.Until(day)), Token), again.GetForecast());
        }
    }

    [Fact]
    public async Task A_disposed_session_rejects_pushes_and_releases_its_id()
    {
        var (panel, before, days) = Cut();
        var request = new SessionRequest("small", before) { SessionId = "mine" };
        var session = await Predictor.OpenSessionAsync(request, Token);
        Assert.Equal(("mine", "small"), (session.SessionId, session.Model.Text));
        var twice = await Assert.ThrowsAsync<QuantraException>(() => Predictor.OpenSessionAsync(request, Token));
        Assert.Equal(QuantraReason.DuplicateId, twice.Reason);
        var pushed = session.PushAsync(panel.Between(days[0], days[0]), cancellationToken: Token);
        await session.DisposeAsync();
        await session.DisposeAsync();
        Assert.NotNull((await pushed).Forecast);
        await Assert.ThrowsAsync<ObjectDisposedException>(() => session.PushAsync(panel.Last(1), cancellationToken: Token));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => session.FlushAsync(Token));
        await using var other = await Predictor.OpenSessionAsync(request, Token);
    }

    [Fact]
    public async Task An_abandoned_session_ends_when_it_is_collected()
    {
        var request = new SessionRequest("small", Cut().Before) { SessionId = "left" };
        await LeaveAsync();
        await GarbageCollection.CollectUntilAsync(async () => await Record.ExceptionAsync(LeaveAsync) is not QuantraException { Reason: QuantraReason.DuplicateId });

        async Task LeaveAsync() => await Predictor.OpenSessionAsync(request, Token);
    }

    [Fact]
    public async Task An_invalid_history_opens_no_session()
    {
        var (_, before, _) = Cut();
        var request = new SessionRequest("small", before.Last(5)) { SessionId = "short" };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.OpenSessionAsync(request, Token));
        Assert.Equal(QuantraReason.TooFewBars, failure.Reason);
        failure = await Assert.ThrowsAsync<QuantraException>(() => Predictor.OpenSessionAsync(new SessionRequest("nowhere", before), Token));
        Assert.Equal(QuantraReason.ModelNotFound, failure.Reason);
        await using var session = await Predictor.OpenSessionAsync(request with { Bars = before }, Token);
    }

    [Fact]
    public async Task A_cancelled_opening_leaves_no_session()
    {
        var request = new SessionRequest("small", Cut().Before) { SessionId = "cancelled" };
        using var source = new CancellationTokenSource();
        var opening = Predictor.OpenSessionAsync(request, source.Token);
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => opening);
        await using var session = await Predictor.OpenSessionAsync(request, Token);
    }

    [Fact]
    public async Task The_gap_policy_stays_that_of_the_opening()
    {
        var (panel, before, days) = Cut();
        var request = new SessionRequest("small", before) { GapPolicy = GapPolicy.Mask };
        await using var session = await Predictor.OpenSessionAsync(request, Token);
        var pushed = await session.PushAsync(panel.Between(days[1], days[1]), cancellationToken: Token);
        var sent = Without(panel, days[0]).Until(days[1]);
        Assert.Equal(await Predictor.PredictAsync(new("small", sent) { GapPolicy = GapPolicy.Mask }, Token), pushed.GetForecast());
    }

    [Fact]
    public async Task Many_sessions_run_in_parallel()
    {
        var (panel, before, days) = Cut();
        var pushed = await Task.WhenAll(Enumerable.Range(0, 40).Select(async place =>
        {
            var symbol = panel.Symbols[place % 2];
            await using var session = await Predictor.OpenSessionAsync(new SessionRequest("small", before.Select(symbol)), Token);
            var results = new List<Forecast>();
            foreach (var day in days)
                results.Add((await session.PushAsync(panel.Between(day, day).Select(symbol), cancellationToken: Token)).GetForecast());
            return (symbol, results);
        }));
        foreach (var (symbol, results) in pushed.Take(2))
        {
            foreach (var (day, result) in days.Zip(results))
                Assert.Equal((await Predictor.PredictAsync(new("small", panel.Until(day).Select(symbol)), Token)).ForecastId, result.ForecastId);
        }
    }

    [Fact]
    public async Task A_session_ends_with_its_predictor_after_running_pushes()
    {
        var (panel, before, days) = Cut();
        var predictor = await OpenAsync();
        var session = await predictor.OpenSessionAsync(new SessionRequest("small", before), Token);
        var pushes = days.Select(day => session.PushAsync(panel.Between(day, day), cancellationToken: Token)).ToArray();
        await predictor.DisposeAsync();
        Assert.Equal(days, (await Task.WhenAll(pushes)).Select(pushed => pushed.GetForecast().AsOf!.Value));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => session.PushAsync(panel.Last(1), cancellationToken: Token));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => predictor.OpenSessionAsync(new SessionRequest("small", before), Token));
        await session.DisposeAsync();
    }

    [Fact]
    public async Task Null_is_rejected_with_its_path()
    {
        var (panel, before, _) = Cut();
        await Assert.ThrowsAsync<ArgumentNullException>(() => Predictor.OpenSessionAsync(null!, Token));
        var request = new SessionRequest("small", before);
        Assert.StartsWith("request.SessionId is null", await RefusalAsync(request with { SessionId = null! }), StringComparison.Ordinal);
        Assert.StartsWith("request.Covariates is null", await RefusalAsync(request with { Covariates = null! }), StringComparison.Ordinal);
        Assert.StartsWith("request.Bars is null", await RefusalAsync(request with { Bars = null! }), StringComparison.Ordinal);
        Assert.StartsWith("request.Model is null", await RefusalAsync(request with { Model = null! }), StringComparison.Ordinal);
        await using var session = await Predictor.OpenSessionAsync(request, Token);
        await Assert.ThrowsAsync<ArgumentNullException>(() => session.PushAsync((BarPanel)null!, cancellationToken: Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => session.PushAsync((BarSeries)null!, cancellationToken: Token));
        var bars = panel.Last(1) with { Symbols = ["AAPL", null!] };
        var failure = await Assert.ThrowsAsync<ArgumentException>(() => session.PushAsync(bars, cancellationToken: Token));
        Assert.StartsWith("bars.Symbols[1] is null", failure.Message, StringComparison.Ordinal);

        async Task<string> RefusalAsync(SessionRequest bad) =>
            (await Assert.ThrowsAsync<ArgumentException>(() => Predictor.OpenSessionAsync(bad, Token))).Message;
    }

    private static BarPanel Without(BarPanel panel, DateOnly left)
    {
        var (length, place) = (panel.Sessions.Length, panel.Sessions.Span.IndexOf(left));
        return panel with
        {
            Sessions = Cut(panel.Sessions),
            Open = Cut(panel.Open),
            High = Cut(panel.High),
            Low = Cut(panel.Low),
            Close = Cut(panel.Close),
            Volume = Cut(panel.Volume),
            AdjustedClose = Cut(panel.AdjustedClose),
        };

        T[] Cut<T>(ReadOnlyMemory<T> column) => [.. column.ToArray().Where((_, index) => index % length != place)];
    }
}
