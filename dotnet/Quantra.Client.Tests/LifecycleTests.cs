namespace Quantra.Client.Tests;

/// <summary>Model changes through the admin address, with a scripted server.</summary>
public sealed class LifecycleTests
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_comparison_is_read_with_its_bounds()
    {
        var wire = new V1.CompareVersionsResponse
        {
            Champion = "small@1",
            Challenger = "small@2",
            Decision = V1.ComparisonDecision.For,
            Need = "not worse by more than 1 %",
            Sentence = "small@2 is better",
            FirstSession = 20130301,
            LastSession = 20130628,
            Days = 83,
            Symbols = { "AAPL", "IBM" },
            Improvement = 0.02,
            Lower = 0.01,
            Upper = 0.03,
            ResultJson = "{}",
        };
        await using var admin = Client(wire, out var server);
        var comparison = await admin.Lifecycle.CompareAsync("small", "small@2", new(2013, 3, 1), Token);
        var expected = new ModelComparison
        {
            Champion = "small@1",
            Challenger = "small@2",
            Decision = ComparisonDecision.For,
            Need = "not worse by more than 1 %",
            Sentence = "small@2 is better",
            FirstSession = new(2013, 3, 1),
            LastSession = new(2013, 6, 28),
            Days = 83,
            Symbols = ["AAPL", "IBM"],
            Improvement = 0.02,
            Lower = 0.01,
            Upper = 0.03,
            ResultJson = "{}",
        };
        Assert.Equal(expected, comparison);
        var request = new V1.CompareVersionsRequest { Champion = "small", Challenger = "small@2", FirstSession = 20130301 };
        Assert.Equal(request, Assert.Single(server.Requests));
    }

    [Fact]
    public async Task A_comparison_of_too_few_days_has_no_bounds()
    {
        await using var admin = Client(new V1.CompareVersionsResponse { Decision = V1.ComparisonDecision.Undecided }, out var server);
        var comparison = await admin.Lifecycle.CompareAsync("small@1", "small@2", cancellationToken: Token);
        Assert.Equal((ComparisonDecision.Undecided, null, null, null), (comparison.Decision, comparison.Improvement, comparison.Lower, comparison.Upper));
        Assert.Equal((null, null), (comparison.FirstSession, comparison.LastSession));
        Assert.Equal(0, ((V1.CompareVersionsRequest)server.Requests[0]).FirstSession);
    }

    [Theory]
    [InlineData(V1.ComparisonDecision.Against, ComparisonDecision.Against)]
    [InlineData((V1.ComparisonDecision)99, ComparisonDecision.Unknown)]
    public async Task A_decision_is_read(object decision, ComparisonDecision expected)
    {
        await using var admin = Client(new V1.CompareVersionsResponse { Decision = (V1.ComparisonDecision)decision }, out _);
        Assert.Equal(expected, (await admin.Lifecycle.CompareAsync("small@1", "small@2", cancellationToken: Token)).Decision);
    }

    [Fact]
    public async Task A_failed_gate_is_no_exception()
    {
        var wire = new V1.PromoteVersionResponse
        {
            Champion = 1,
            Gates =
            {
                new V1.GateResult { Name = "losses", Passed = true, Need = "more", Have = "enough" },
                new V1.GateResult { Name = "audit", Overridden = true },
                new V1.GateResult { Name = "shadow", Need = "20 days", Have = "3 days" },
            },
        };
        await using var admin = Client(wire, out var server);
        var result = await admin.Lifecycle.PromoteAsync("small@2", "better since March", ["audit"], Token);
        Assert.Equal(
            new PromotionResult(false, [new("losses", true, false, "more", "enough"), new("audit", false, true, "", ""), new("shadow", false, false, "20 days", "3 days")], 1),
            result);
        Assert.Equal(new V1.PromoteVersionRequest { Version = "small@2", Reason = "better since March", OverrideGates = { "audit" } }, Assert.Single(server.Requests));
    }

    [Fact]
    public async Task A_model_without_a_champion_has_none()
    {
        await using var admin = Client(new V1.PromoteVersionResponse(), out _);
        Assert.Null((await admin.Lifecycle.PromoteAsync("small@2", "why not", cancellationToken: Token)).Champion);
    }

    [Fact]
    public async Task A_rollback_returns_both_champions()
    {
        await using var admin = Client(new V1.RollBackChampionResponse { Champion = 1, Previous = 2 }, out var server);
        Assert.Equal(new RollbackResult(1, 2), await admin.Lifecycle.RollBackAsync("small", "worse since May", 2, Token));
        await admin.Lifecycle.RollBackAsync("small", "worse since May", cancellationToken: Token);
        var request = new V1.RollBackChampionRequest { Model = "small", Reason = "worse since May" };
        Assert.Equal([new V1.RollBackChampionRequest(request) { Champion = 2 }, request], server.Requests);
    }

    [Fact]
    public async Task Null_is_rejected_before_the_call()
    {
        await using var admin = Client(new V1.RollBackChampionResponse(), out var server);
        await Assert.ThrowsAsync<ArgumentNullException>(() => admin.Lifecycle.CompareAsync(null!, "small@2", cancellationToken: Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => admin.Lifecycle.CompareAsync("small@1", null!, cancellationToken: Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => admin.Lifecycle.PromoteAsync("small@2", null!, cancellationToken: Token));
        await Assert.ThrowsAsync<ArgumentNullException>(() => admin.Lifecycle.RollBackAsync(null!, "why", cancellationToken: Token));
        Assert.Empty(server.Requests);
    }

    [Fact]
    public async Task Loading_returns_why_other_versions_are_not_served()
    {
        await using var loading = Client(new V1.LoadModelResponse { Models = { new V1.ModelInfo { Name = "small", Version = 1 } }, Problems = { "small@2 is damaged" } }, out _);
        Assert.Equal("serves small@1; not served: small@2 is damaged", (await loading.LoadAsync("small", Token)).ToString());
        await using var reloading = Client(new V1.ReloadModelResponse { Problems = { "small@2 is damaged" } }, out _);
        Assert.Equal(["small@2 is damaged"], (await reloading.ReloadAsync("small", Token)).Problems);
    }

    private static ModelAdminClient Client(object answer, out FixedResponseInvoker server) =>
        new(server = new FixedResponseInvoker(Task.FromResult(answer)), new QuantraClientOptions());
}
