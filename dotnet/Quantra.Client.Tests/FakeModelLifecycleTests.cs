using Quantra.Client.Testing;

namespace Quantra.Client.Tests;

/// <summary>The lifecycle for users' tests.</summary>
public sealed class FakeModelLifecycleTests
{
    private static readonly QuantraException Down = new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "down").ToException();

    private static readonly GateResult Audit = new("audit", false, false, "a passed audit", "none");

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_version_that_passes_its_gates_becomes_the_champion()
    {
        var lifecycle = new FakeModelLifecycle();
        var promoted = await lifecycle.PromoteAsync("stock@2", "newer", cancellationToken: Token);
        Assert.Equal(new PromotionResult(true, lifecycle.Gates, 2), promoted);
        Assert.Equal(new PromotionResult(true, [], 2), await lifecycle.PromoteAsync("stock@2", "again", cancellationToken: Token));
        Assert.Equal([new ChampionChange("stock", 2, "newer")], lifecycle.Changes);
    }

    [Fact]
    public async Task A_failed_gate_keeps_the_champion_unless_it_is_overridden()
    {
        var lifecycle = new FakeModelLifecycle();
        await lifecycle.PromoteAsync("stock@1", "first", cancellationToken: Token);
        lifecycle.Gates = [Audit];
        Assert.Equal(new PromotionResult(false, [Audit], 1), await lifecycle.PromoteAsync("stock@2", "newer", ["losses"], Token));
        var overridden = new PromotionResult(true, [Audit with { IsOverridden = true }], 2);
        Assert.Equal(overridden, await lifecycle.PromoteAsync("stock@2", "newer", ["audit"], Token));
        Assert.Null((await lifecycle.PromoteAsync("other@1", "newer", cancellationToken: Token)).Champion);
    }

    [Fact]
    public async Task A_rollback_goes_back_one_champion()
    {
        var lifecycle = new FakeModelLifecycle();
        foreach (var version in new[] { "stock@1", "stock@2", "stock@3", "other@9" })
            await lifecycle.PromoteAsync(version, "newer", cancellationToken: Token);
        Assert.Equal(new RollbackResult(2, 3), await lifecycle.RollBackAsync("stock", "too narrow", 3, Token));
        await AssertRefusedAsync("the champion of stock is 2, not 3", () => lifecycle.RollBackAsync("stock", "too narrow", 3, Token));
        Assert.Equal(new RollbackResult(1, 2), await lifecycle.RollBackAsync("stock", "too narrow", cancellationToken: Token));
        await AssertRefusedAsync("stock has no previous champion", () => lifecycle.RollBackAsync("stock", "too narrow", cancellationToken: Token));
        Assert.Equal([1, 2, 3, 9, 2, 1], lifecycle.Changes.Select(change => change.Version));

        static async Task AssertRefusedAsync(string message, Func<Task> call)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(call);
            Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
            Assert.StartsWith(message, failure.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task A_comparison_has_the_set_decision()
    {
        var lifecycle = new FakeModelLifecycle { Decision = ComparisonDecision.For };
        var comparison = await lifecycle.CompareAsync("stock@1", "stock@2", new(2024, 7, 1), Token);
        Assert.Equal(("stock@1", "stock@2", ComparisonDecision.For), (comparison.Champion, comparison.Challenger, comparison.Decision));
        Assert.Equal((new DateOnly(2024, 7, 1), new DateOnly(2024, 7, 26), 20), (comparison.FirstSession, comparison.LastSession, comparison.Days));
        Assert.True(comparison.Lower > 0);
    }

    [Fact]
    public async Task Every_call_waits_and_throws_as_the_test_sets()
    {
        var answer = new TaskCompletionSource();
        var lifecycle = new FakeModelLifecycle { BeforeCall = cancelled => answer.Task.WaitAsync(cancelled) };
        Func<CancellationToken, Task>[] calls =
        [
            token => lifecycle.CompareAsync("stock@1", "stock@2", cancellationToken: token),
            token => lifecycle.PromoteAsync("stock@1", "newer", cancellationToken: token),
            token => lifecycle.RollBackAsync("stock", "older", cancellationToken: token),
        ];
        using var source = new CancellationTokenSource();
        Task[] running = [.. calls.Select(call => call(source.Token))];
        Assert.DoesNotContain(running, task => task.IsCompleted);
        await source.CancelAsync();
        foreach (var task in running)
            await Assert.ThrowsAnyAsync<OperationCanceledException>(() => task);
        answer.SetResult();
        lifecycle.Failure = Down;
        foreach (var call in calls)
            Assert.Same(Down, await Assert.ThrowsAsync<QuantraException>(() => call(Token)));
        Assert.Empty(lifecycle.Changes);
    }

    [Theory]
    [InlineData("stock")]
    [InlineData("stock@champion")]
    public async Task Only_a_version_can_be_promoted(string reference)
    {
        var failure = await Assert.ThrowsAsync<QuantraException>(() => new FakeModelLifecycle().PromoteAsync(reference, "newer", cancellationToken: Token));
        Assert.Equal(QuantraReason.InvalidInput, failure.Reason);
    }
}
