using Google.Protobuf;

namespace Quantra.Client.Tests;

/// <summary>Price paths from a server.</summary>
public sealed class GrpcPathSimulationTests(PredictorFixture fixture) : PathSimulationTests(fixture)
{
    private static readonly BarPanel Bars = new()
    {
        Symbols = ["A"],
        Sessions = default,
        Open = default,
        High = default,
        Low = default,
        Close = default,
        Volume = default,
    };

    /// <summary>Messages after the answers, each of them invalid, by the problem.</summary>
    private static readonly Dictionary<string, V1.SimulatePathsResponse[]> BrokenParts = new()
    {
        ["returns has 0 elements, expected 4"] = [],
        ["returns has 2 elements, expected 4"] = [Part(0, 2)],
        ["path 1 came where path 0 was expected"] = [Part(1, 2)],
        ["path 0 came where path 1 was expected"] = [Part(0, 2), Part(0, 2)],
        ["a part of the paths has 3 elements"] = [Part(0, 3)],
        ["a part of the paths has 0 elements"] = [Part(0, 0)],
        ["a part of the paths has 6 elements"] = [Part(0, 6)],
    };

    public static TheoryData<string> Broken => [.. BrokenParts.Keys];

    protected override IPathSimulator Simulator => (IPathSimulator)Fixture.Grpc;

    protected override IPathSimulator With(TimeSpan timeout) => ((QuantraClient)Fixture.Grpc).WithTimeout(timeout);

    [Theory]
    [MemberData(nameof(Broken))]
    public async Task Parts_that_are_missing_or_out_of_order_are_an_error(string problem) =>
        await AssertInvalidAsync(problem, includesPaths: true, [Answers(), .. BrokenParts[problem]]);

    [Fact]
    public async Task A_response_that_does_not_fit_the_request_is_an_error()
    {
        await AssertInvalidAsync("it has no message", includesPaths: false);
        await AssertInvalidAsync("a part of the paths has 2 elements", includesPaths: false, Answers(), Part(0, 2));
        var (many, none, bare) = (Answers(), Answers(), Answers());
        (many.Paths, many.Days, none.Paths) = (int.MaxValue, int.MaxValue, 0);
        bare.Prices.Add(new V1.PriceProbability { Symbol = "A" });
        await AssertInvalidAsync("2147483647 paths", includesPaths: true, many);
        await AssertInvalidAsync("it has 0 paths", includesPaths: true, none);
        await AssertInvalidAsync("a probability is missing", includesPaths: false, bare);
    }

    [Fact]
    public async Task A_client_makes_no_fifth_simulation_while_four_are_running()
    {
        var (token, end) = (TestContext.Current.CancellationToken, new TaskCompletionSource());
        var invoker = new FixedResponseInvoker(Task.FromResult(new object()));
        foreach (var ending in (Task[])[end.Task, end.Task, end.Task, end.Task, Task.CompletedTask])
            invoker.Stream(ending, Answers());
        await using var client = new QuantraClient(invoker, new QuantraClientOptions());
        var request = new PathSimulationRequest(new("small", Bars));
        var running = new List<Task>();
        while (running.Count < 4)
        {
            running.Add(client.SimulatePathsAsync(request, token));
            while (invoker.Requests.Count < running.Count)
                await Task.Yield();
        }

        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.WithTimeout(TimeSpan.FromSeconds(0.5)).SimulatePathsAsync(request, token));
        Assert.Equal(QuantraReason.DeadlineExceeded, failure.Reason);
        end.SetResult();
        await Task.WhenAll(running);
        Assert.Equal(2, (await client.SimulatePathsAsync(request, token)).Paths);
        Assert.Equal(5, invoker.Requests.Count);
    }

    private static V1.SimulatePathsResponse Answers() =>
        new() { Symbols = { "A" }, AnchorPrice = Doubles(1), Paths = 2, Days = 2, Day = 2 };

    private static V1.SimulatePathsResponse Part(int firstPath, int count) => new() { FirstPath = firstPath, Returns = Doubles(count) };

    private static ByteString Doubles(int count) => ByteString.CopyFrom(new byte[count * sizeof(double)]);

    private static async Task AssertInvalidAsync(string problem, bool includesPaths, params V1.SimulatePathsResponse[] messages)
    {
        var invoker = new FixedResponseInvoker(Task.FromResult(new object())).Stream(Task.CompletedTask, messages);
        await using var client = new QuantraClient(invoker, new QuantraClientOptions());
        var request = new PathSimulationRequest(new("small", Bars)) { IncludePaths = includesPaths };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.SimulatePathsAsync(request, TestContext.Current.CancellationToken));
        Assert.Equal(QuantraReason.Internal, failure.Reason);
        Assert.Contains(problem, failure.Message, StringComparison.Ordinal);
    }
}
