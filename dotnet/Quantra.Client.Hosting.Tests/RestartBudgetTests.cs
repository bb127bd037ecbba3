using Quantra.Client.Hosting.Servers;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Number and delay of restarts.</summary>
public sealed class RestartBudgetTests
{
    private static TimeSpan?[] Spent(RestartBudget budget, int times, bool wasReady = true) =>
        [.. Enumerable.Range(0, times).Select(_ => budget.Spend(wasReady))];

    private static TimeSpan?[] Seconds(params double?[] seconds) =>
        [.. seconds.Select(one => one is { } known ? TimeSpan.FromSeconds(known) : (TimeSpan?)null)];

    [Fact]
    public void The_first_restart_is_immediate_and_the_fourth_within_a_minute_is_denied() =>
        Assert.Equal(Seconds(0, 1, 2, null), Spent(new RestartBudget(new QuantraServerOptions(), new ManualTimeProvider()), 4));

    [Fact]
    public void Delays_double_up_to_the_maximum()
    {
        var options = new QuantraServerOptions { MaxRestarts = 6, MaxRestartDelay = TimeSpan.FromSeconds(5) };
        Assert.Equal(Seconds(0, 1, 2, 4, 5, 5), Spent(new RestartBudget(options, new ManualTimeProvider()), 6));
    }

    [Fact]
    public void Restarts_expire_after_the_window()
    {
        var time = new ManualTimeProvider();
        var budget = new RestartBudget(new QuantraServerOptions(), time);
        Spent(budget, 3);
        time.Advance(TimeSpan.FromSeconds(59));
        Assert.Null(budget.Spend(wasReady: true));
        time.Advance(TimeSpan.FromSeconds(1));
        Assert.Equal(Seconds(0, 1), Spent(budget, 2));
    }

    [Fact]
    public void Restarts_without_a_ready_server_never_expire()
    {
        var time = new ManualTimeProvider();
        var budget = new RestartBudget(new QuantraServerOptions(), time);
        Spent(budget, 3, wasReady: false);
        time.Advance(TimeSpan.FromHours(1));
        Assert.Null(budget.Spend(wasReady: false));
    }

    [Fact]
    public void Zero_restarts_are_possible() =>
        Assert.Null(new RestartBudget(new QuantraServerOptions { MaxRestarts = 0 }, new ManualTimeProvider()).Spend(wasReady: true));
}
