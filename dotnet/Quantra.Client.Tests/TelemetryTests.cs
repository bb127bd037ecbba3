using System.Diagnostics;

namespace Quantra.Client.Tests;

/// <summary>Activities, metrics and the log of a client.</summary>
public sealed class TelemetryTests(PredictorFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(fixture.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public async Task A_successful_call_is_recorded_with_method_model_and_time()
    {
        using var seen = new TelemetryRecorder();
        await using var client = new QuantraClient(fixture.Address);
        await client.PredictAsync(Request, Token);
        Assert.Equal(["Predict small OK"], seen.Calls);
        Assert.InRange(Assert.Single(seen.Seconds), 1e-6, 30);
        var activity = Assert.Single(seen.Activities);
        Assert.Equal(("quantra.v1.PredictionService/Predict", ActivityKind.Client), (activity.OperationName, activity.Kind));
        Assert.Equal(("small", 1, ActivityStatusCode.Unset), (activity.GetTagItem("quantra.model"), activity.GetTagItem("quantra.attempts"), activity.Status));
    }

    [Fact]
    public async Task A_failed_call_is_recorded_with_its_reason()
    {
        using var seen = new TelemetryRecorder();
        await using var client = new QuantraClient(fixture.Address);
        await Assert.ThrowsAsync<QuantraException>(() => client.GetModelAsync("nowhere", Token));
        Assert.Equal(["GetModel nowhere MODEL_NOT_FOUND"], seen.Calls);
        var activity = Assert.Single(seen.Activities);
        Assert.Equal((ActivityStatusCode.Error, "MODEL_NOT_FOUND"), (activity.Status, activity.StatusDescription));
    }

    [Fact]
    public async Task Retries_are_counted()
    {
        using var seen = new TelemetryRecorder();
        await using var client = new QuantraClient(new Uri("http://127.0.0.1:1"), new() { MaxAttempts = 3 });
        await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal(2, seen.Retries);
        Assert.Equal(3, Assert.Single(seen.Activities).GetTagItem("quantra.attempts"));
    }

    [Fact]
    public async Task A_cancelled_call_is_recorded_as_cancelled()
    {
        using var cancelled = new CancellationTokenSource();
        await using var client = new QuantraClient(fixture.Address);
        var many = Enumerable.Repeat(Request, 1000).ToArray();
        await client.PredictManyAsync(many[..10], Token); // so that the client knows the model
        using var seen = new TelemetryRecorder();
        var asked = client.PredictManyAsync(many, cancelled.Token);
        await cancelled.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => asked);
        Assert.All(seen.Calls, call => Assert.Equal("Predict small CANCELLED", call));
    }

    [Fact]
    public async Task A_call_cancelled_in_the_limiter_is_recorded()
    {
        using var seen = new TelemetryRecorder();
        using var cancelled = new CancellationTokenSource();
        await using var client = new QuantraClient(fixture.Address);
        var request = new ManyExplanationsRequest(Request with { Model = "tft" }, []) { Detail = ExplanationDetail.Cells };
        var asked = Enumerable.Range(0, 12).Select(_ => client.ExplainManyAsync(request, cancelled.Token)).ToArray();
        await client.PredictAsync(Request, Token);
        await cancelled.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => Task.WhenAll(asked));
        await client.DisposeAsync();
        Assert.Equal(seen.Started, seen.Calls.Count);
        Assert.Contains("Explain tft CANCELLED", seen.Calls);
    }

    [Fact]
    public async Task The_log_has_methods_models_and_reasons_but_no_numbers_or_tokens()
    {
        const string Secret = "secret-secret-secret-secret-secret";
        using var log = new LogRecorder();
        var options = new QuantraClientOptions { LoggerFactory = log, Token = _ => new(Secret) };
        await using var client = new QuantraClient(fixture.Address, options);
        var request = Request;
        await client.PredictAsync(request, Token);
        await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(new PredictionRequest("small", request.Bars!.Last(2)), Token));
        var ours = log.Lines.Where(line => line.StartsWith("Quantra.Client:", StringComparison.Ordinal)).ToArray();
        Assert.Contains(ours, line => line.Contains("Predict of 'small' succeeded after", StringComparison.Ordinal));
        var price = request.Bars!.Close.Span[^1].ToString("R", System.Globalization.CultureInfo.InvariantCulture);
        Assert.DoesNotContain(log.Lines, line => line.Contains(Secret, StringComparison.Ordinal) || line.Contains(price, StringComparison.Ordinal));
    }
}
