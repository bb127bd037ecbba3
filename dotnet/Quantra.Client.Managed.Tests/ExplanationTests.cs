using System.Buffers.Binary;
using System.Text.Json;

namespace Quantra.Client.Managed.Tests;

/// <summary>Explanations of forecasts from bars, compared with those that tests/managed_explanations.py recorded.</summary>
public sealed class ExplanationTests
{
    private static readonly JsonElement All = JsonDocument.Parse(FixtureFiles.Read("explanations.json")).RootElement;

    public static TheoryData<string> Names => [.. All.EnumerateObject().Select(one => one.Name)];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Theory]
    [MemberData(nameof(Names))]
    public async Task An_explanation_is_Pythons(string name)
    {
        var (recorded, instance) = (All.GetProperty(name), RecordedRequest.Of(All.GetProperty(name).GetProperty("request").GetString()!));
        await using var predictor = await ManagedPredictor.OpenAsync(
            Path.Combine(RecordedRequest.Models, instance.Model, "1"), new FixedClock(instance.Now), Token);
        var (request, expected) = (Request(recorded, instance), recorded.GetProperty("expected"));
        if (expected.ValueKind == JsonValueKind.Object)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.ExplainManyAsync(request, Token));
            ForecastTests.AssertSame(expected.GetProperty("error"), failure.Error);
            return;
        }

        var attributions = await predictor.ExplainManyAsync(request, Token);
        Assert.Equal(expected.GetArrayLength(), attributions.Count);
        foreach (var (one, actual) in expected.EnumerateArray().Zip(attributions))
            AssertSame(one, actual);
    }

    [Fact]
    public async Task The_explained_number_is_the_forecasts()
    {
        var instance = RecordedRequest.Of("tft");
        await using var predictor = await OpenAsync(instance);
        var forecast = await predictor.PredictAsync(instance.Request(), Token);
        var attribution = await predictor.ExplainAsync(new ExplanationRequest(instance.Request(), 5, 0.9), Token);
        Assert.Equal(forecast.Symbols.Select(symbol => forecast.Value(symbol, 5, 0.9)), attribution.Prediction.ToArray());
    }

    [Theory]
    [InlineData("covariates")]
    [InlineData("tft")]
    [InlineData("trees")]
    [InlineData("weighted")]
    public async Task Shapley_values_add_up_to_the_difference_from_the_baseline(string name)
    {
        var instance = RecordedRequest.Of(name);
        await using var predictor = await OpenAsync(instance);
        var request = new ExplanationRequest(instance.Request(), 5) { Symbols = ["IBM"], Method = "shapley" };
        var attribution = await predictor.ExplainAsync(request, Token);
        Assert.Equal(("shapley", true), (attribution.Method, attribution.Converged[0]));
        Assert.Equal(attribution.Prediction.Span[0] - attribution.BaselinePrediction.Span[0], attribution.PerRow.ToArray().Sum(), 1e-15);
    }

    [Theory]
    [InlineData(1.0, QuantraReason.MalformedRequest)]
    [InlineData(1e-5, QuantraReason.MalformedRequest)]
    [InlineData(double.NaN, QuantraReason.MalformedRequest)]
    public async Task A_tolerance_that_float32_cannot_reach_is_rejected(double tolerance, string reason)
    {
        var instance = RecordedRequest.Of("panel");
        await using var predictor = await OpenAsync(instance);
        var request = new ExplanationRequest(instance.Request(), 5) { Tolerance = tolerance };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.ExplainAsync(request, Token));
        Assert.Equal(reason, failure.Reason);
    }

    [Fact]
    public async Task Too_many_targets_are_rejected()
    {
        var instance = RecordedRequest.Of("panel");
        await using var predictor = await OpenAsync(instance);
        var request = new ManyExplanationsRequest(instance.Request(), [.. Enumerable.Repeat(new ExplanationTarget(5), 257)]);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.ExplainManyAsync(request, Token));
        Assert.Equal((QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge), (failure.Code, failure.Reason));
    }

    [Theory]
    [InlineData("attribution_observed")]
    [InlineData("attribution_alone")]
    [InlineData("attribution_ends")]
    public async Task A_recorded_explanation_that_differs_rejects_every_explanation_with_its_stage(string stage)
    {
        var instance = RecordedRequest.Of("gru");
        using var artifact = EditedArtifact.Of("gru");
        artifact.Edit("golden/arrays.safetensors", content => Negated(content, $"stage.{stage}"));
        await using var predictor = await ManagedPredictor.OpenAsync(artifact.Folder, new FixedClock(instance.Now), Token);
        Assert.Single((await predictor.PredictAsync(instance.Request(), Token)).Symbols, "AAPL");
        for (var call = 0; call < 2; call++)
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.ExplainAsync(new ExplanationRequest(instance.Request(), 5), Token));
            Assert.Equal(QuantraReason.ArtifactInvalid, failure.Reason);
            Assert.Contains($"stage {stage} is off by", failure.Message, StringComparison.Ordinal);
        }
    }

    /// <summary>Changes the signs of an array of float64 numbers.</summary>
    private static byte[] Negated(byte[] content, string name)
    {
        var length = (int)BinaryPrimitives.ReadInt64LittleEndian(content);
        using var header = JsonDocument.Parse(content.AsMemory(8, length));
        var offsets = header.RootElement.GetProperty(name).GetProperty("data_offsets");
        for (var place = offsets[0].GetInt32() + 7; place < offsets[1].GetInt32(); place += 8)
            content[8 + length + place] ^= 0x80;
        return content;
    }

    private static Task<ManagedPredictor> OpenAsync(RecordedRequest instance) =>
        ManagedPredictor.OpenAsync(Path.Combine(RecordedRequest.Models, instance.Model, "1"), new FixedClock(instance.Now), Token);

    private static ManyExplanationsRequest Request(JsonElement recorded, RecordedRequest instance) => new(
        instance.Request(),
        [.. recorded.GetProperty("targets").EnumerateArray().Select(target => new ExplanationTarget(target[0].GetInt32(), target[1].GetDouble()))])
    {
        Symbols = RecordedRequest.Texts(recorded.GetProperty("symbols")),
        Detail = Enum.Parse<ExplanationDetail>(recorded.GetProperty("detail").GetString()!, ignoreCase: true),
        Tolerance = recorded.GetProperty("tolerance").GetDouble(),
        Method = recorded.GetProperty("method").GetString()!,
    };

    private static void AssertSame(JsonElement expected, Attribution actual)
    {
        foreach (var (name, text) in new[]
        {
            ("method", actual.Method), ("baseline", actual.Baseline), ("unit", actual.Unit), ("weights_hash", actual.WeightsHash), ("skill", actual.Skill?.Line),
        })
            Assert.Equal(expected.GetProperty(name).GetString(), text);
        Assert.Equal(RecordedRequest.Texts(expected.GetProperty("symbols")), actual.Symbols);
        Assert.Equal(RecordedRequest.Texts(expected.GetProperty("warnings")), actual.Warnings);
        Assert.Equal(RecordedRequest.Texts(expected.GetProperty("row_names")), actual.RowNames);
        Assert.Equal(RecordedRequest.Texts(expected.GetProperty("row_kinds")), actual.RowKinds.Select(kind => kind.ToString().ToLowerInvariant()));
        Assert.Equal((expected.GetProperty("horizon").GetInt32(), expected.GetProperty("quantile").GetDouble()), (actual.Horizon, actual.Quantile));
        Assert.Equal(Days(expected.GetProperty("sessions")), actual.Sessions);
        Assert.Equal(RecordedRequest.Date(expected.GetProperty("as_of_session").GetInt32()), actual.AsOf);
        Assert.Equal(expected.GetProperty("nodes").EnumerateArray().Select(one => one.GetInt32()), actual.Nodes);
        Assert.Equal(expected.GetProperty("converged").EnumerateArray().Select(one => one.GetBoolean()), actual.Converged);
        AssertNear(expected.GetProperty("per_row"), actual.PerRow, 1e-5);
        AssertNear(expected.GetProperty("per_time"), actual.PerTime, 1e-5);
        AssertNear(expected.GetProperty("cells"), actual.Cells, 1e-5);
        AssertNear(expected.GetProperty("prediction"), actual.Prediction, 1e-5);
        AssertNear(expected.GetProperty("baseline_prediction"), actual.BaselinePrediction, 1e-5);
        var gaps = RecordedRequest.Decoded<double>(expected.GetProperty("relative_gap"));
        Assert.All(gaps.Zip(actual.RelativeGap.ToArray()), pair => Assert.Equal(pair.First, pair.Second, 1e-3));
        Assert.Equal(expected.GetProperty("internals").GetArrayLength(), actual.Internals.Count);
        foreach (var (one, shares) in expected.GetProperty("internals").EnumerateArray().Zip(actual.Internals))
        {
            Assert.Equal(one.GetProperty("name").GetString(), shares.Name);
            Assert.Equal(one.GetProperty("axis").GetString(), shares.Axis.ToString(), ignoreCase: true);
            Assert.Equal(RecordedRequest.Texts(one.GetProperty("labels")), shares.Labels);
            AssertNear(one.GetProperty("values"), shares.Values, 1e-5);
        }

        var refusals = expected.GetProperty("refusals").EnumerateObject().ToDictionary(one => one.Name, one => one.Value);
        Assert.Equal(refusals.Keys.Order(), actual.Refusals.Keys.Order());
        foreach (var (symbol, error) in refusals)
            ForecastTests.AssertSame(error, actual.Refusals[symbol]);
    }

    private static IEnumerable<DateOnly> Days(JsonElement days) => days.EnumerateArray().Select(day => RecordedRequest.Date(day.GetInt32()));

    /// <summary>Compares numbers relative to the largest of them.</summary>
    private static void AssertNear(JsonElement expected, ReadOnlyMemory<double>? actual, double tolerance)
    {
        Assert.Equal(expected.ValueKind == JsonValueKind.Null, actual is null);
        if (actual is not { } numbers)
            return;
        var recorded = RecordedRequest.Decoded<double>(expected);
        Assert.Equal(recorded.Select(double.IsNaN), numbers.ToArray().Select(double.IsNaN));
        var largest = recorded.Where(double.IsFinite).Max(Math.Abs);
        Assert.All(recorded.Zip(numbers.ToArray()), pair => Assert.True(
            double.IsNaN(pair.First) || Math.Abs(pair.First - pair.Second) <= tolerance * largest, $"{pair.Second} is not {pair.First}"));
    }
}
