using System.Diagnostics.CodeAnalysis;
using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Every method on the thread of a user interface: awaited it returns there, and blocked upon it does not stand still.</summary>
public sealed class SingleThreadTests(Doors doors)
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
        [.. from method in Methods.Keys from door in Kinds where door != Plain || method != nameof(IStockPredictor.ExplainGlobalAsync) select (method, door)];

    public static TheoryData<string> EachDoor => [.. Kinds];

    private const string Plain = "plain";

    private static readonly string[] Kinds = ["gRPC", "embedded", Plain];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(doors.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public void No_method_is_left_out() =>
        Assert.Equal(typeof(IStockPredictor).GetMethods().Select(method => method.Name).Order(), Methods.Keys.Order());

    [Theory]
    [MemberData(nameof(Everywhere))]
    public async Task An_awaited_method_returns_to_the_thread(string method, string door)
    {
        using var thread = new SingleThread();
        await thread.RunAsync(async () =>
        {
            await Methods[method](Door(door), Request);
            Assert.True(thread.IsCurrent);
        });
    }

    [Theory]
    [MemberData(nameof(Everywhere))]
    public async Task A_method_that_is_blocked_upon_returns(string method, string door)
    {
        using var thread = new SingleThread();
        await thread.RunAsync(() => Blocked(Methods[method](Door(door), Request)));
    }

    [Theory]
    [MemberData(nameof(EachDoor))]
    public async Task Results_of_a_stream_are_read_on_the_thread(string door)
    {
        using var thread = new SingleThread();
        await thread.RunAsync(async () =>
        {
            await foreach (var _ in Door(door).PredictStreamAsync(Feed(Request), Token))
                Assert.True(thread.IsCurrent);
            Assert.True(thread.IsCurrent);
        });
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task The_beginning_and_the_end_of_a_predictor_may_be_awaited_and_blocked_upon(bool blocks)
    {
        using var thread = new SingleThread();
        await thread.RunAsync(async () =>
        {
            var opening = EmbeddedPredictor.OpenAsync(doors.EmbeddedOptions, Token);
            await (blocks ? Blocked(opening) : opening);
            IStockPredictor[] predictors = [await opening, new QuantraClient(doors.Address)];
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
    public async Task The_reading_of_a_file_may_be_awaited_and_blocked_upon(bool blocks)
    {
        using var thread = new SingleThread();
        await thread.RunAsync(async () =>
        {
            var reading = BarPanel.ReadCsvAsync(doors.PathOf("bars.csv"), Token);
            await (blocks ? Blocked(reading) : reading);
            Assert.True(thread.IsCurrent);
        });
    }

    private static RequestFeed Feed(PredictionRequest request) => new(request) { Count = 20 };

    private static async Task ReadAsync<T>(IAsyncEnumerable<T> results)
    {
        await foreach (var _ in results.ConfigureAwait(false))
        {
            // All of them.
        }
    }

    private static async Task SessionAsync(IStockPredictor predictor, PredictionRequest request)
    {
        var (bars, last) = (request.Bars!, request.Bars!.Sessions.Span[^1]);
        var session = await predictor.OpenSessionAsync(new("small", bars.Until(last.AddDays(-1))), Token).ConfigureAwait(false);
        await using var ending = session.ConfigureAwait(false);
        await session.PushAsync(bars.Between(last, last), flush: true, cancellationToken: Token).ConfigureAwait(false);
    }

    private IStockPredictor Door(string door) => door switch
    {
        "gRPC" => doors.Grpc,
        "embedded" => doors.Embedded,
        _ => new PlainPredictor(doors.Grpc),
    };

    /// <summary>Keeps the thread until the task is done.</summary>
    [SuppressMessage("Performance", "CA1849:Call async methods when in an async method", Justification = "to block is what is tried")]
    private static Task Blocked(Task task)
    {
        task.GetAwaiter().GetResult();
        return Task.CompletedTask;
    }
}
