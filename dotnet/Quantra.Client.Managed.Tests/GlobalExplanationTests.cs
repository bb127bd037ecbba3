namespace Quantra.Client.Managed.Tests;

/// <summary>What global explanations count.</summary>
public sealed class GlobalExplanationTests
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_symbol_without_a_forecast_is_counted_and_left_out()
    {
        var instance = RecordedRequest.Of("one did not trade");
        await using var predictor = await OpenAsync(instance);
        var result = Assert.Single(await ReadAsync(predictor, new([instance.Request()], [new(5)])));
        Assert.Equal((0, 1), (result.Refused, result.RefusedSymbols));
        Assert.Equal((0, "IBM"), (Assert.Single(result.Refusals).Place, result.Refusals[0].Symbol));
        var target = Assert.Single(result.Targets);
        Assert.Equal((1, 1.0), (target.Windows, target.Converged));
        var alone = await predictor.ExplainAsync(new ExplanationRequest(instance.Request(), 5) { Symbols = ["AAPL"] }, Token);
        Assert.Equal(alone.PerRow.ToArray().Select(Math.Abs), target.MeanSize.ToArray());
        Assert.All(target.StandardError.ToArray(), error => Assert.Equal(double.NaN, error));
    }

    [Fact]
    public async Task About_100_reports_list_the_first_refusals()
    {
        var instance = RecordedRequest.Of("too few bars");
        await using var predictor = await OpenAsync(instance);
        var reports = await ReadAsync(predictor, new([.. Enumerable.Repeat(instance.Request(), 202)], []));
        Assert.Equal([3, 6, 201, 202], new[] { reports[0].Done, reports[1].Done, reports[^2].Done, reports[^1].Done });
        Assert.Equal((202, 10), (reports[^1].Refused, reports[^1].Refusals.Count));
        Assert.Equal(Enumerable.Range(0, 10), reports[^1].Refusals.Select(one => one.Place));
        Assert.Empty(reports[^1].Targets);
    }

    [Fact]
    public async Task The_method_applies_to_all_instances()
    {
        var instance = RecordedRequest.Of("gru");
        await using var predictor = await OpenAsync(instance);
        var byShapley = await ReadAsync(predictor, new([instance.Request()], [new(5)]) { Method = "shapley" });
        var shapley = await predictor.ExplainAsync(new ExplanationRequest(instance.Request(), 5) { Symbols = ["AAPL"], Method = "shapley" }, Token);
        var other = await predictor.ExplainAsync(new ExplanationRequest(instance.Request(), 5) { Symbols = ["IBM"], Method = "shapley" }, Token);
        var means = shapley.PerRow.ToArray().Zip(other.PerRow.ToArray(), (one, two) => (Math.Abs(one) + Math.Abs(two)) / 2);
        Assert.Equal(means, byShapley[0].Targets[0].MeanSize.ToArray());
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ReadAsync(predictor, new([instance.Request()], []) { Method = "tree-shap" }));
        Assert.Equal(QuantraReason.ExplainUnsupported, failure.Reason);
    }

    private static Task<ManagedPredictor> OpenAsync(RecordedRequest instance) =>
        ManagedPredictor.OpenAsync(Path.Combine(RecordedRequest.Models, instance.Model, "1"), new FixedClock(instance.Now), Token);

    private static async Task<List<GlobalExplanationProgress>> ReadAsync(ManagedPredictor predictor, GlobalExplanationRequest request)
    {
        var reports = new List<GlobalExplanationProgress>();
        await foreach (var one in predictor.ExplainGlobalAsync(request, Token))
            reports.Add(one);
        return reports;
    }
}
