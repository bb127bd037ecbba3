using Google.Protobuf;
using Grpc.Core;

namespace Quantra.Client.Tests;

/// <summary>Reading a server's ledger, with a scripted server.</summary>
public sealed class LedgerTests
{
    private static readonly DateOnly Friday = new(2013, 3, 1);

    private static readonly RpcException Unavailable = new(new Status(StatusCode.Unavailable, "stopping"));

    private static readonly Dictionary<string, Action<V1.RecordedForecast>> BrokenForecasts = new()
    {
        ["values has 1 elements, expected 4"] = forecast => forecast.Values = Doubles(1),
        ["target_sessions has 3 elements, expected 2"] = forecast => forecast.TargetSessions.Add(20130311),
        ["an array has 15 bytes"] = forecast => forecast.Values = ByteString.CopyFrom(new byte[15]),
        ["1 is not a date"] = forecast => forecast.AsOfSession = 1,
        ["20130229 is not a date"] = forecast => forecast.BaseSession = 20130229,
        ["20131301 is not a date"] = forecast => forecast.TargetSessions[0] = 20131301,
        ["20130332 is not a date"] = forecast => forecast.Outcomes[0].Session = 20130332,
    };

    public static TheoryData<string> Broken => [.. BrokenForecasts.Keys];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private static Task Open => new TaskCompletionSource().Task;

    [Fact]
    public async Task A_forecast_is_read_with_its_outcomes()
    {
        await using var client = Client(Answer(new V1.GetForecastResponse { Forecasts = { Wire() } }), out var server);
        var forecast = Assert.Single(await client.Ledger.GetForecastsAsync("id", "AAPL", Token));
        Assert.Equal(("id", "AAPL"), (Sent<V1.GetForecastRequest>(server).ForecastId, Sent<V1.GetForecastRequest>(server).Symbol));
        RecordedOutcome scored = new(1, new(2013, 3, 4), 0, OutcomeStatus.Scored, 0.5, "", 0.25, true, 0.75);
        RecordedOutcome unscorable = new(5, new(2013, 3, 8), 0, OutcomeStatus.Unscorable, null, "no bar", null, null, null);
        var expected = new RecordedForecast
        {
            ForecastId = "id",
            Symbol = "AAPL",
            Role = ForecastRole.Champion,
            Model = "small",
            Version = 1,
            WeightsHash = "weights",
            AsOf = Friday,
            BaseSession = Friday,
            TargetKind = "log-return",
            Horizons = [1, 5],
            TargetSessions = [new(2013, 3, 4), new(2013, 3, 8)],
            Quantiles = [0.1, 0.9],
            Values = new[] { 0.0, 1, 2, 3 },
            AnchorPrice = 430.5,
            IsProspective = true,
            MadeAt = new(2013, 3, 1, 21, 0, 0, TimeSpan.Zero),
            Outcomes = [scored, unscorable],
        };
        Assert.Equal(expected, forecast);
        Assert.Equal((3, scored, unscorable), (forecast.Value(5, 0.9), forecast.Outcome(1), forecast.Outcome(5)));
        Assert.Throws<ArgumentException>(() => forecast.Outcome(20));
        Assert.Throws<ArgumentException>(() => forecast.Value(5, 0.5));
    }

    [Fact]
    public async Task Missing_optional_parts_are_null()
    {
        var bare = Wire();
        bare.ClearAnchorPrice();
        bare.Outcomes.Clear();
        (bare.AsOfSession, bare.BaseSession) = (0, 0); // a client sent feature windows without it
        bare.TargetSessions.Clear();
        await using var client = Client(Answer(new V1.GetForecastResponse { Forecasts = { bare } }), out _);
        var forecast = Assert.Single(await client.Ledger.GetForecastsAsync("id", cancellationToken: Token));
        Assert.Equal((null, null, null, null), (forecast.AnchorPrice, forecast.Outcome(5), forecast.AsOf, forecast.BaseSession));
        Assert.Empty(forecast.TargetSessions);
    }

    [Theory]
    [MemberData(nameof(Broken))]
    public async Task An_invalid_forecast_is_an_error(string problem)
    {
        var broken = Wire();
        BrokenForecasts[problem](broken);
        await using var client = Client(Answer(new V1.GetForecastResponse { Forecasts = { broken } }), out _);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.Ledger.GetForecastsAsync("id", cancellationToken: Token));
        Assert.Equal(QuantraReason.Internal, failure.Reason);
        Assert.Contains(problem, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Unknown_enum_values_are_Unknown()
    {
        var newer = Wire();
        (newer.Role, newer.Outcomes[0].Status) = ((V1.ForecastRole)99, (V1.OutcomeStatus)99);
        await using var client = Client(Answer(new V1.GetForecastResponse { Forecasts = { newer } }), out _);
        var forecast = (await client.Ledger.GetForecastsAsync("id", cancellationToken: Token))[0];
        Assert.Equal((ForecastRole.Unknown, OutcomeStatus.Unknown), (forecast.Role, forecast.Outcomes[0].Status));
        var model = new V1.ModelHealth { Lamp = (V1.Lamp)99, Tests = { new V1.TestHealth { Lamp = (V1.Lamp)99, Session = 20130301 } } };
        await using var other = Client(Answer(new V1.GetHealthResponse { Models = { model } }), out _);
        var health = (await other.Ledger.GetHealthAsync(cancellationToken: Token)).Models[0];
        Assert.Equal((Lamp.Unknown, Lamp.Unknown), (health.Lamp, health.Tests[0].Lamp));
    }

    [Fact]
    public async Task Forecasts_are_listed_in_order_over_several_messages()
    {
        var (one, two) = (Wire(), Wire());
        two.ForecastId = "second";
        V1.ListForecastsResponse[] parts = [new() { Forecasts = { one, two } }, new(), new() { Forecasts = { one } }];
        await using var client = Client(server: out var server);
        server.Stream(Task.CompletedTask, parts);
        var query = new ForecastQuery
        {
            Model = "small@1",
            Symbol = "AAPL",
            First = Friday,
            Last = new(2013, 3, 28),
            Roles = [ForecastRole.Champion, ForecastRole.Client],
            Newest = 20,
        };
        var forecasts = await client.Ledger.ListForecastsAsync(query, Token).ToListAsync(Token);
        Assert.Equal(["id", "second", "id"], forecasts.Select(forecast => forecast.ForecastId));
        var expected = new V1.ListForecastsRequest
        {
            Model = "small@1",
            Symbol = "AAPL",
            FirstSession = 20130301,
            LastSession = 20130328,
            Roles = { V1.ForecastRole.Champion, V1.ForecastRole.Client },
            Newest = 20,
        };
        Assert.Equal(expected, Sent<V1.ListForecastsRequest>(server));
        await client.Ledger.ListForecastsAsync(new(), Token).ToListAsync(Token);
        Assert.Equal(new V1.ListForecastsRequest(), server.Requests[1]);
    }

    [Fact]
    public async Task An_invalid_query_is_rejected_before_the_call()
    {
        await using var client = Client(server: out var server);
        Assert.Throws<ArgumentException>(() => client.Ledger.ListForecastsAsync(new() { Roles = [ForecastRole.Unknown] }, Token));
        Assert.Throws<ArgumentOutOfRangeException>(() => new ForecastQuery { Newest = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => client.Ledger.WatchEventsAsync(after: -1, cancellationToken: Token));
        Assert.Throws<ArgumentNullException>(() => client.Ledger.ListForecastsAsync(null!, Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => client.Ledger.GetForecastsAsync(null!, cancellationToken: Token));
        Assert.Empty(server.Requests);
    }

    [Fact]
    public async Task Lamps_are_read_with_their_tests()
    {
        var wire = new V1.GetHealthResponse
        {
            LastSession = 20130308,
            Models =
            {
                new V1.ModelHealth
                {
                    Model = "small",
                    Version = 2,
                    IsChampion = true,
                    Lamp = V1.Lamp.Amber,
                    Tests =
                    {
                        new V1.TestHealth { Monitor = "coverage too few", Horizon = 5, Lamp = V1.Lamp.Amber, Session = 20130308, Days = 30, Share = 0.7, Promised = 0.8, StateJson = "{}" },
                        new V1.TestHealth { Monitor = "skill against har@1", Horizon = 1, Lamp = V1.Lamp.Learning, Session = 20130307 },
                    },
                },
            },
        };
        await using var client = Client(Answer(wire), out var server);
        var health = await client.Ledger.GetHealthAsync("small", Token);
        TestHealth coverage = new("coverage too few", 5, Lamp.Amber, new(2013, 3, 8), 30, 0.7, 0.8, "{}");
        TestHealth skill = new("skill against har@1", 1, Lamp.Learning, new(2013, 3, 7), 0, null, null, "");
        Assert.Equal(new LedgerHealth([new("small", 2, true, Lamp.Amber, [coverage, skill])], new(2013, 3, 8)), health);
        Assert.Equal("small", Sent<V1.GetHealthRequest>(server).Model);
    }

    [Fact]
    public async Task A_view_sends_its_header_to_the_ledger()
    {
        await using var client = Client(Answer(new V1.GetHealthResponse()), out var server);
        await client.WithHeader("x-request-id", "42").Ledger.GetHealthAsync(cancellationToken: Token);
        Assert.Equal(["x-request-id: 42"], server.Headers);
    }

    [Fact]
    public async Task Events_are_read_with_all_parts()
    {
        var wire = new V1.WatchEventsResponse
        {
            Number = 7,
            MadeAtNs = 1_362_171_600_000_000_000,
            Kind = "alarm",
            Model = "small",
            Version = 1,
            Session = 20130301,
            Reason = "coverage",
            DetailJson = "{}",
        };
        await using var client = Client(server: out var server);
        server.Stream(Open, wire, new V1.WatchEventsResponse { Number = 9 });
        var events = await client.Ledger.WatchEventsAsync("small", 6, Token).Take(2).ToListAsync(Token);
        Assert.Equal(new(7, new(2013, 3, 1, 21, 0, 0, TimeSpan.Zero), "alarm", "small", 1, Friday, "coverage", "{}"), events[0]);
        Assert.Null(events[1].Session);
        Assert.Equal(new V1.WatchEventsRequest { Model = "small", After = 6 }, Sent<V1.WatchEventsRequest>(server));
    }

    [Fact]
    public async Task A_broken_watch_continues_after_the_last_event()
    {
        using var seen = new TelemetryRecorder();
        await using var client = Client(server: out var server);
        server
            .Stream(Task.FromException(Unavailable), Event(1), Event(2))
            .Stream(Task.FromException(Unavailable))
            .Stream(Task.CompletedTask, Event(3)) // a server that ends the call without an error
            .Stream(Open, Event(5));
        var events = await client.Ledger.WatchEventsAsync(cancellationToken: Token).Take(4).ToListAsync(Token);
        Assert.Equal([1, 2, 3, 5], events.Select(one => one.Number));
        Assert.Equal([0, 2, 2, 3], server.Requests.Cast<V1.WatchEventsRequest>().Select(request => request.After));
        Assert.Equal(3, seen.Retries);
        Assert.Contains(seen.Activities, activity => activity.OperationName == "quantra.v1.LedgerService/WatchEvents");
    }

    [Fact]
    public async Task A_watch_fails_if_the_server_stays_unavailable_for_the_timeout()
    {
        await using var client = Client(server: out var server);
        server.Stream(Task.FromException(Unavailable), Event(1)).Stream(Task.FromException(Unavailable));
        var (read, failure) = await ReadUntilFailureAsync(client.WithTimeout(TimeSpan.FromSeconds(0.5)).Ledger);
        Assert.Equal(("1", QuantraReason.Unavailable), (read, failure.Reason));
        Assert.True(server.Requests.Count > 1);
    }

    [Fact]
    public async Task A_watch_with_one_attempt_is_not_continued()
    {
        var server = new FixedResponseInvoker(Answer(new object())).Stream(Task.FromException(Unavailable), Event(1));
        await using var client = new QuantraClient(server, new() { MaxAttempts = 1 });
        var (read, failure) = await ReadUntilFailureAsync(client.Ledger);
        Assert.Equal(("1", QuantraReason.Unavailable, 1), (read, failure.Reason, server.Requests.Count));
    }

    [Fact]
    public async Task A_rejected_watch_is_not_continued()
    {
        await using var client = Client(server: out var server);
        server.Stream(Task.FromException(new RpcException(new Status(StatusCode.FailedPrecondition, "no ledger"))));
        var (_, failure) = await ReadUntilFailureAsync(client.Ledger);
        Assert.Equal((QuantraStatus.FailedPrecondition, 1), (failure.Code, server.Requests.Count));
    }

    [Fact]
    public async Task A_repeated_event_is_an_error()
    {
        await using var client = Client(server: out var server);
        server.Stream(Task.FromException(new RpcException(new Status(StatusCode.FailedPrecondition, "no more"))), Event(2), Event(2));
        var (read, failure) = await ReadUntilFailureAsync(client.Ledger);
        Assert.Equal(("2", QuantraReason.Internal), (read, failure.Reason));
        Assert.Contains("event 2 came after event 2", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Disposing_the_client_ends_a_watch_at_once()
    {
        var server = new FixedResponseInvoker(Answer(new object())).Stream(Open, Event(1));
        var client = new QuantraClient(server, new() { GraceTime = TimeSpan.FromDays(1) });
        await using var events = client.Ledger.WatchEventsAsync(cancellationToken: Token).GetAsyncEnumerator(Token);
        Assert.True(await events.MoveNextAsync());
        await client.DisposeAsync();
        Assert.False(await events.MoveNextAsync());
        await Assert.ThrowsAsync<ObjectDisposedException>(() => client.Ledger.GetHealthAsync(cancellationToken: Token));
    }

    [Fact]
    public async Task A_cancelled_watch_throws_OperationCanceledException()
    {
        using var source = new CancellationTokenSource();
        await using var client = Client(server: out var server);
        server.Stream(Open, Event(1));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(async () =>
        {
            await foreach (var _ in client.Ledger.WatchEventsAsync(cancellationToken: source.Token))
                await source.CancelAsync();
        });
    }

    private static V1.WatchEventsResponse Event(long number) => new() { Number = number };

    private static Task<object> Answer(object answer) => Task.FromResult(answer);

    private static QuantraClient Client(out FixedResponseInvoker server) => Client(Answer(new object()), out server);

    private static QuantraClient Client(Task<object> answer, out FixedResponseInvoker server) =>
        new(server = new FixedResponseInvoker(answer), new QuantraClientOptions());

    private static T Sent<T>(FixedResponseInvoker server) => (T)server.Requests[0];

    private static async Task<(string Read, QuantraException Failure)> ReadUntilFailureAsync(IForecastLedger ledger)
    {
        var read = new List<long>();
        var failure = await Assert.ThrowsAsync<QuantraException>(async () =>
        {
            await foreach (var one in ledger.WatchEventsAsync(cancellationToken: Token))
                read.Add(one.Number);
        });
        return (string.Join(", ", read), failure);
    }

    /// <summary>A forecast of two horizons and two quantiles.</summary>
    private static V1.RecordedForecast Wire() => new()
    {
        ForecastId = "id",
        Symbol = "AAPL",
        Role = V1.ForecastRole.Champion,
        Model = "small",
        Version = 1,
        WeightsHash = "weights",
        AsOfSession = 20130301,
        BaseSession = 20130301,
        TargetKind = "log-return",
        Horizons = { 1, 5 },
        TargetSessions = { 20130304, 20130308 },
        Quantiles = { 0.1, 0.9 },
        Values = Doubles(4),
        AnchorPrice = 430.5,
        IsProspective = true,
        MadeAtNs = 1_362_171_600_000_000_000,
        Outcomes =
        {
            new V1.RecordedOutcome { Horizon = 1, Session = 20130304, Status = V1.OutcomeStatus.Scored, Value = 0.5, Pinball = 0.25, IsInside = true, Level = 0.75 },
            new V1.RecordedOutcome { Horizon = 5, Session = 20130308, Status = V1.OutcomeStatus.Unscorable, Reason = "no bar" },
        },
    };

    /// <summary>The numbers 0, 1, 2 …</summary>
    private static ByteString Doubles(int count) =>
        ByteString.CopyFrom([.. Enumerable.Range(0, count).SelectMany(number => BitConverter.GetBytes((double)number))]);
}
