using System.Text.Json;

namespace Quantra.Client.Managed.Tests;

/// <summary>Forecasts, warnings and errors, compared with those that Python recorded.</summary>
public sealed class ForecastTests
{
    /// <summary>Largest difference of a value, relative to itself or to the size of a return.</summary>
    private const double Tolerance = 1e-6;

    private const double SizeOfReturn = 0.1;

    public static TheoryData<string> Requests => [.. RecordedRequest.Names];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Theory]
    [MemberData(nameof(Requests))]
    public async Task A_result_is_Pythons(string name)
    {
        var recorded = RecordedRequest.Of(name);
        await using var predictor = await OpenAsync(recorded);
        if (recorded.Expected.TryGetProperty("error", out var error))
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.PredictAsync(recorded.Request(), Token));
            AssertSame(error, failure.Error);
        }
        else
        {
            AssertSame(recorded.Expected, await predictor.PredictAsync(recorded.Request(), Token));
        }
    }

    [Fact]
    public async Task Later_calls_do_not_change_a_forecast()
    {
        var request = RecordedRequest.Of("panel").Request();
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var forecast = await predictor.PredictAsync(request, Token);
        var copy = forecast with
        {
            Values = forecast.Values.ToArray(),
            Returns = forecast.Returns!.Value.ToArray(),
            Prices = forecast.Prices!.Value.ToArray(),
            AnchorPrice = forecast.AnchorPrice!.Value.ToArray(),
        };
        var higher = await predictor.PredictAsync(RecordedRequest.WithPrices(request, 2), Token);
        Assert.NotEqual(higher.AnchorPrice!.Value.ToArray(), copy.AnchorPrice!.Value.ToArray());
        Assert.Equal(copy, forecast);
    }

    [Fact]
    public void A_forecast_allocates_little_besides_its_result()
    {
        var (recorded, model) = (RecordedRequest.Of("one"), ModelRegistry.Open(RecordedRequest.Models, null, Token).Find("plain"));
        var request = recorded.Request();
        model.Predict(request, recorded.Now);
        var before = GC.GetAllocatedBytesForCurrentThread();
        model.Predict(request, recorded.Now);
        Assert.InRange(GC.GetAllocatedBytesForCurrentThread() - before, 1, 2_500);
    }

    private static Task<ManagedPredictor> OpenAsync(RecordedRequest recorded) =>
        ManagedPredictor.OpenAsync(Path.Combine(RecordedRequest.Models, recorded.Model, "1"), new FixedClock(recorded.Now), Token);

    private static void AssertSame(JsonElement expected, Forecast actual)
    {
        Assert.Equal(RecordedRequest.Texts(expected.GetProperty("symbols")), actual.Symbols);
        Assert.Equal(RecordedRequest.Texts(expected.GetProperty("warnings")), actual.Warnings);
        Assert.Equal(expected.GetProperty("skill").GetString(), actual.Skill?.Line);
        AssertNear(expected.GetProperty("values"), actual.Values, Tolerance);
        AssertNear(expected.GetProperty("returns"), actual.Returns, Tolerance);
        AssertNear(expected.GetProperty("prices"), actual.Prices, Tolerance);
        AssertNear(expected.GetProperty("anchor_price"), actual.AnchorPrice, 0);
        AssertNear(expected.GetProperty("scores"), actual.Scores, Tolerance);
        Assert.Equal(expected.GetProperty("universe_hash").GetString(), actual.UniverseHash);
        Assert.Equal(
            expected.GetProperty("ranks") is { ValueKind: JsonValueKind.String } ranks ? RecordedRequest.Decoded<int>(ranks) : null, actual.Ranks?.ToArray());
        Assert.Equal(expected.GetProperty("as_of_session").GetInt32(), Number(actual.AsOf!.Value));
        Assert.Equal(expected.GetProperty("base_session").GetInt32(), Number(actual.BaseSession!.Value));
        Assert.Equal(expected.GetProperty("target_sessions").EnumerateArray().Select(day => day.GetInt32()), actual.TargetSessions.Select(Number));
        Assert.Equal(expected.GetProperty("horizons").EnumerateArray().Select(days => days.GetInt32()), actual.Horizons);
        Assert.Equal(expected.GetProperty("quantiles").EnumerateArray().Select(level => level.GetDouble()), actual.Quantiles);
        Assert.Equal(expected.GetProperty("target_kind").GetString(), actual.TargetKind);
        Assert.Equal(expected.GetProperty("weights_hash").GetString(), actual.WeightsHash);
        var refusals = expected.GetProperty("refusals").EnumerateObject().ToDictionary(one => one.Name, one => one.Value);
        Assert.Equal(refusals.Keys.Order(), actual.Refusals.Keys.Order());
        foreach (var (symbol, error) in refusals)
            AssertSame(error, actual.Refusals[symbol]);
    }

    internal static void AssertSame(JsonElement expected, QuantraError actual)
    {
        Assert.Equal(expected.GetProperty("message").GetString(), actual.Message);
        Assert.Equal(expected.GetProperty("reason").GetString(), actual.Reason);
        Assert.Equal(expected.GetProperty("status").GetString()!.Replace("_", "", StringComparison.Ordinal), actual.Code.ToString(), ignoreCase: true);
        Assert.Equal(
            expected.GetProperty("metadata").EnumerateObject().ToDictionary(one => one.Name, one => one.Value.GetString()!),
            actual.Metadata.ToDictionary(one => one.Key, one => one.Value));
    }

    private static void AssertNear(JsonElement expected, ReadOnlyMemory<double>? actual, double tolerance)
    {
        Assert.Equal(expected.ValueKind == JsonValueKind.Null, actual is null);
        if (actual is not { } numbers)
            return;
        var recorded = RecordedRequest.Decoded<double>(expected);
        Assert.Equal(recorded.Length, numbers.Length);
        for (var cell = 0; cell < recorded.Length; cell++)
        {
            var difference = Math.Abs(recorded[cell] - numbers.Span[cell]);
            Assert.True(recorded[cell].Equals(numbers.Span[cell]) || difference <= tolerance * Math.Max(Math.Abs(recorded[cell]), SizeOfReturn), $"cell {cell} is {numbers.Span[cell]}, not {recorded[cell]}");
        }
    }

    private static int Number(DateOnly day) => (day.Year * 10000) + (day.Month * 100) + day.Day;
}
