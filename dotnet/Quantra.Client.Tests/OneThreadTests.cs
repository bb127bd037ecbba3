namespace Quantra.Client.Tests;

/// <summary>Every call of every predictor from the one thread of a window, which is back on it after each await.</summary>
public sealed class OneThreadTests(Doors doors)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public Task Over_gRPC_every_call_comes_back_to_the_window() => EveryCallAsync(doors.Grpc);

    [Fact]
    public Task Inside_this_process_every_call_comes_back_to_the_window() => EveryCallAsync(doors.Embedded);

    [Fact]
    public Task By_default_implementations_every_call_comes_back_to_the_window() => EveryCallAsync(new PlainPredictor(doors.Grpc), isPlain: true);

    private Task EveryCallAsync(IStockPredictor predictor, bool isPlain = false)
    {
        var (panel, before, days) = SessionDays.Cut(doors, 1);
        var request = new PredictionRequest("small", panel);
        return OneThread.RunAsync(async () =>
        {
            var window = Environment.CurrentManagedThreadId;
            await predictor.PredictAsync(request, Token);
            await predictor.PredictManyAsync([request], Token);
            await predictor.ExplainAsync(new(request, 5), Token);
            await predictor.ExplainManyAsync(new(request, []), Token);
            await predictor.ListModelsAsync(Token);
            await predictor.GetModelAsync("small", Token);
            await foreach (var result in predictor.PredictStreamAsync(new RequestFeed(request) { Count = 50 }, Token))
                Assert.Equal(window, Environment.CurrentManagedThreadId);
            await using (var session = await predictor.OpenSessionAsync(new SessionRequest("small", before), Token))
            {
                await session.PushAsync(panel.Between(days[0], days[0]).Select("IBM"), cancellationToken: Token);
                await session.FlushAsync(Token);
            }

            if (!isPlain)
            {
                await foreach (var known in predictor.ExplainGlobalAsync(new([request], []), Token))
                    Assert.Equal(window, Environment.CurrentManagedThreadId);
            }

            Assert.Equal(window, Environment.CurrentManagedThreadId);
        });
    }
}
