namespace Quantra.Client.Tests;

/// <summary>Global explanations of every predictor.</summary>
public abstract class GlobalExplanationTests(PredictorFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    protected PredictorFixture Fixture => fixture;

    protected abstract IStockPredictor Predictor { get; }

    /// <summary>Largest difference from Python's sizes, relative to the largest size; 0 = none in any bit.</summary>
    protected virtual double Tolerance => 0;

    /// <summary>The request whose result is in the fixture.</summary>
    private GlobalExplanationRequest Request
    {
        get
        {
            var panel = BarPanel.ReadCsv(fixture.PathOf("bars.csv"));
            var days = panel.Sessions.ToArray();
            PredictionRequest[] instances = [new("small", panel), new("small", panel.Until(days[^6])), new("small", panel.Last(5))];
            return new GlobalExplanationRequest(instances, [new(5), new(20, 0.9)]);
        }
    }

    [Fact]
    public async Task Global_explanations_equal_Pythons()
    {
        var known = await ReadAsync(Predictor.ExplainGlobalAsync(Request, Token));
        Assert.Equal([1, 2, 3], known.Select(one => one.Done).Distinct());
        var (result, expected) = (known[^1], fixture.Expected.Of("global"));
        Assert.Equal((3, 3, 1, 0), (result.Done, result.Total, result.Refused, result.RefusedSymbols));
        Assert.Equal(("small", 1, expected.Text("weights_hash")), (result.Model, result.Version, result.WeightsHash));
        foreach (var (target, wanted) in result.Targets.Zip(expected.All("targets")))
        {
            Assert.Equal(wanted.Texts("row_names"), target.RowNames);
            Assert.Equal(wanted.Texts("row_kinds"), target.RowKinds.Select(kind => kind.ToString().ToLowerInvariant()));
            AssertSizes(wanted, "mean_size", target.MeanSize);
            AssertSizes(wanted, "standard_error", target.StandardError);
            Assert.Equal((wanted.Text("unit"), 4, 1.0), (target.Unit, target.Windows, target.Converged));
        }

        Assert.Equal([(5, 0.5), (20, 0.9)], result.Targets.Select(target => (target.Horizon, target.Quantile)));
        var table = result.Targets[0].Table();
        Assert.Equal(table.OrderByDescending(row => row.MeanSize), table);
    }

    [Fact]
    public async Task An_instance_without_an_explanation_is_counted_with_its_reason()
    {
        var result = (await ReadAsync(Predictor.ExplainGlobalAsync(Request, Token)))[^1];
        var refusal = Assert.Single(result.Refusals);
        Assert.Equal((2, "", QuantraReason.TooFewBars), (refusal.Place, refusal.Symbol, refusal.Error.Reason));
    }

    [Fact]
    public async Task A_reader_that_stops_ends_the_call()
    {
        var instances = Enumerable.Repeat(Request.Instances[0], 200).ToArray();
        await foreach (var known in Predictor.ExplainGlobalAsync(new GlobalExplanationRequest(instances, []), Token))
        {
            Assert.Equal((200, 4), (known.Total, known.Targets.Count));
            Assert.InRange(known.Done, 1, 199);
            break;
        }

        Assert.NotEmpty((await Predictor.ExplainAsync(new ExplanationRequest(instances[0], 5), Token)).RowNames); // the explanation queue is free again
    }

    [Fact]
    public async Task It_can_be_cancelled()
    {
        using var source = new CancellationTokenSource();
        var instances = Enumerable.Repeat(Request.Instances[0], 200).ToArray();
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(async () =>
        {
            await foreach (var known in Predictor.ExplainGlobalAsync(new GlobalExplanationRequest(instances, []), source.Token))
                await source.CancelAsync();
        });
        Assert.Equal(source.Token, failure.CancellationToken);
    }

    [Fact]
    public async Task An_unknown_model_or_target_is_rejected()
    {
        var bars = Request.Instances[0].Bars!;
        Assert.Equal(QuantraReason.ModelNotFound, await RefusalAsync(new([new("nowhere", bars)], [])));
        Assert.Equal(QuantraReason.UnknownHorizon, await RefusalAsync(new([new("small", bars)], [new(3)])));
        Assert.Equal(QuantraReason.MalformedRequest, await RefusalAsync(new([new("small", bars)], []) { Tolerance = 1 }));

        async Task<string> RefusalAsync(GlobalExplanationRequest bad) =>
            (await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(Predictor.ExplainGlobalAsync(bad, Token)))).Reason;
    }

    [Fact]
    public void Invalid_requests_are_rejected_at_once()
    {
        var (good, bars) = (Request, Request.Instances[0].Bars!);
        Assert.Throws<ArgumentNullException>(() => Predictor.ExplainGlobalAsync(null!, Token));
        Assert.StartsWith("request.Instances is null", Refusal(good with { Instances = null! }), StringComparison.Ordinal);
        Assert.StartsWith("request.Instances is empty", Refusal(good with { Instances = [] }), StringComparison.Ordinal);
        Assert.StartsWith("request.Instances[1] is null", Refusal(good with { Instances = [good.Instances[0], null!] }), StringComparison.Ordinal);
        Assert.StartsWith("request.Targets[0] is null", Refusal(good with { Targets = [null!] }), StringComparison.Ordinal);
        var mixed = good with { Instances = [good.Instances[0], new("graph", bars)] };
        Assert.StartsWith("request.Instances[1] uses model graph, but the first instance uses small", Refusal(mixed), StringComparison.Ordinal);

        string Refusal(GlobalExplanationRequest bad) =>
            Assert.Throws<ArgumentException>(() => Predictor.ExplainGlobalAsync(bad, Token)).Message;
    }

    private void AssertSizes(ExpectedResults expected, string name, ReadOnlyMemory<double> actual)
    {
        if (Tolerance == 0)
            Assert.Equal(expected.Bits(name), ExpectedResults.BitsOf(actual));
        var sizes = expected.Array<double>(name);
        Assert.All(sizes.Zip(actual.ToArray()), pair => Assert.Equal(pair.First, pair.Second, Tolerance * sizes.Max()));
    }

    private static async Task<List<GlobalExplanationProgress>> ReadAsync(IAsyncEnumerable<GlobalExplanationProgress> all)
    {
        var known = new List<GlobalExplanationProgress>();
        await foreach (var one in all)
            known.Add(one);
        return known;
    }
}
