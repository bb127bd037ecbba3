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
    };

    public static TheoryData<string, bool> Everywhere =>
        new(Methods.Keys.Select(method => (method, false)).Concat(Methods.Keys.Select(method => (method, true))));

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(doors.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public void No_method_is_left_out() =>
        Assert.Equal(typeof(IStockPredictor).GetMethods().Select(method => method.Name).Order(), Methods.Keys.Order());

    [Theory]
    [MemberData(nameof(Everywhere))]
    public async Task An_awaited_method_returns_to_the_thread(string method, bool embedded)
    {
        using var thread = new SingleThread();
        await thread.RunAsync(async () =>
        {
            await Methods[method](embedded ? doors.Embedded : doors.Grpc, Request);
            Assert.True(thread.IsCurrent);
        });
    }

    [Theory]
    [MemberData(nameof(Everywhere))]
    public async Task A_method_that_is_blocked_upon_returns(string method, bool embedded)
    {
        using var thread = new SingleThread();
        await thread.RunAsync(() => Blocked(Methods[method](embedded ? doors.Embedded : doors.Grpc, Request)));
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

    /// <summary>Keeps the thread until the task is done.</summary>
    [SuppressMessage("Performance", "CA1849:Call async methods when in an async method", Justification = "to block is what is tried")]
    private static Task Blocked(Task task)
    {
        task.GetAwaiter().GetResult();
        return Task.CompletedTask;
    }
}
