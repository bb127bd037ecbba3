using System.Diagnostics.CodeAnalysis;
using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Calls of every method on a UI thread: awaiting returns to the thread, and blocking does not deadlock.</summary>
public sealed class SingleThreadTests(PredictorFixture fixture)
{
    private static readonly Dictionary<string, Func<IStockPredictor, PredictionRequest, Task>> Methods = new()
    {
        [nameof(IStockPredictor.PredictAsync)] = (predictor, request) => predictor.PredictAsync(request, Token),
        [nameof(IStockPredictor.PredictManyAsync)] = (predictor, request) => predictor.PredictManyAsync([request, request], Token),
        [nameof(IStockPredictor.ExplainAsync)] = (predictor, request) => predictor.ExplainAsync(new(request, 5), Token),
        [nameof(IStockPredictor.ExplainManyAsync)] = (predictor, request) => predictor.ExplainManyAsync(new(request, []), Token),
        [nameof(IStockPredictor.ListModelsAsync)] = (predictor, _) => predictor.ListModelsAsync(Token),
        [nameof(IStockPredictor.GetModelAsync)] = (predictor, _) => predictor.GetModelAsync("small", Token),
        [nameof(IStockPredictor.PredictStreamAsync)] = (predictor, request) => ReadAsync(predictor.PredictStreamAsync(Feed(request), Token)),
        [nameof(IStockPredictor.OpenSessionAsync)] = SessionAsync,
        [nameof(IStockPredictor.ExplainGlobalAsync)] = (predictor, request) => ReadAsync(predictor.ExplainGlobalAsync(new([request], []), Token)),
    };

    public static TheoryData<string, string> Everywhere =>
        [.. from method in Methods.Keys from kind in Kinds where kind != Plain || method != nameof(IStockPredictor.ExplainGlobalAsync) select (method, kind)];

    public static TheoryData<string> EachDoor => [.. Kinds];

    private const string Plain = "plain";

    private static readonly string[] Kinds = ["gRPC", "embedded", Plain];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(fixture.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public void All_methods_are_covered() =>
        Assert.Equal(typeof(IStockPredictor).GetMethods().Select(method => method.Name).Order(), Methods.Keys.Order());

    [Theory]
    [MemberData(nameof(Everywhere))]
    public async Task Awaiting_a_method_returns_to_the_thread(string method, string kind)
    {
        using var thread = new SingleThreadContext();
        await thread.RunAsync(async () =>
        {
            await Methods[method](PredictorOf(kind), Request);
            Assert.True(thread.IsCurrent);
        });
    }

    [Theory]
    [MemberData(nameof(Everywhere))]
    public async Task Blocking_on_a_method_does_not_deadlock(string method, string kind)
    {
        using var thread = new SingleThreadContext();
        await thread.RunAsync(() => Blocked(Methods[method](PredictorOf(kind), Request)));
    }

    [Theory]
    [MemberData(nameof(EachDoor))]
    public async Task Results_of_a_stream_are_read_on_the_thread(string kind)
    {
        using var thread = new SingleThreadContext();
        await thread.RunAsync(async () =>
        {
            await foreach (var _ in PredictorOf(kind).PredictStreamAsync(Feed(Request), Token))
                Assert.True(thread.IsCurrent);
            Assert.True(thread.IsCurrent);
        });
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Opening_and_disposing_can_be_awaited_and_blocked_on(bool blocks)
    {
        using var thread = new SingleThreadContext();
        await thread.RunAsync(async () =>
        {
            var opening = EmbeddedPredictor.OpenAsync(fixture.EmbeddedOptions, Token);
            await (blocks ? Blocked(opening) : opening);
            IStockPredictor[] predictors = [await opening, new QuantraClient(fixture.Address)];
            foreach (var predictor in predictors)
            {
                var call = predictor.PredictAsync(Request, Token);
                var end = predictor.DisposeAsync().AsTask();
                await (blocks ? Blocked(end) : end);
                Assert.True(thread.IsCurrent);
                await call;
            }
        });
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Reading_a_file_can_be_awaited_and_blocked_on(bool blocks)
    {
        using var thread = new SingleThreadContext();
        await thread.RunAsync(async () =>
        {
            var reading = BarPanel.ReadCsvAsync(fixture.PathOf("bars.csv"), Token);
            await (blocks ? Blocked(reading) : reading);
            Assert.True(thread.IsCurrent);
        });
    }

    private static RequestFeed Feed(PredictionRequest request) => new(request) { Count = 20 };

    private static async Task ReadAsync<T>(IAsyncEnumerable<T> results)
    {
        await foreach (var _ in results.ConfigureAwait(false))
        {
        }
    }

    private static async Task SessionAsync(IStockPredictor predictor, PredictionRequest request)
    {
        var (bars, last) = (request.Bars!, request.Bars!.Sessions.Span[^1]);
        var session = await predictor.OpenSessionAsync(new("small", bars.Until(last.AddDays(-1))), Token).ConfigureAwait(false);
        await using var ending = session.ConfigureAwait(false);
        await session.PushAsync(bars.Between(last, last), flush: true, cancellationToken: Token).ConfigureAwait(false);
    }

    private IStockPredictor PredictorOf(string kind) => kind switch
    {
        "gRPC" => fixture.Grpc,
        "embedded" => fixture.Embedded,
        _ => new MinimalPredictor(fixture.Grpc),
    };

    /// <summary>Blocks the thread until the task completes.</summary>
    [SuppressMessage("Performance", "CA1849:Call async methods when in an async method", Justification = "to block is what is tried")]
    private static Task Blocked(Task task)
    {
        task.GetAwaiter().GetResult();
        return Task.CompletedTask;
    }
}
