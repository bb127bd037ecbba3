using Google.Protobuf;

namespace Quantra.Client.Tests;

/// <summary>Responses of newer or faulty servers: unknown values are Unknown, invalid ones are errors.</summary>
public sealed class NewerServerTests
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

    private static readonly Dictionary<string, Action<V1.Forecast>> BrokenForecasts = new()
    {
        ["values has 1 elements, expected 2"] = forecast => forecast.Values = Doubles(1),
        ["returns has 3 elements"] = forecast => forecast.Returns = Doubles(3),
        ["prices has 1 elements"] = forecast => forecast.Prices = Doubles(1),
        ["anchor_price has 2 elements"] = forecast => forecast.AnchorPrice = Doubles(2),
        ["scores has 2 elements"] = forecast => forecast.Scores = Doubles(2),
        ["ranks has 3 elements"] = forecast => forecast.Ranks.AddRange([1, 2, 3]),
        ["target_sessions has 2 elements"] = forecast => forecast.TargetSessions.Add(20130305),
        ["an array has 15 bytes"] = forecast => forecast.Values = ByteString.CopyFrom(new byte[15]),
        ["20130229 is not a date"] = forecast => forecast.AsOfSession = 20130229,
        ["20131301 is not a date"] = forecast => forecast.BaseSession = 20131301,
        ["-20130301 is not a date"] = forecast => forecast.TargetSessions[0] = -20130301,
        ["1 is not a date"] = forecast => forecast.TargetSessions[0] = 1,
    };

    private static readonly Dictionary<string, Action<V1.Attribution>> BrokenAttributions = new()
    {
        ["row_kinds has 0 elements"] = attribution => attribution.RowKinds.Clear(),
        ["per_row has 2 elements, expected 1"] = attribution => attribution.PerRow = Doubles(2),
        ["per_time has 1 elements, expected 2"] = attribution => attribution.PerTime = Doubles(1),
        ["prediction has 0 elements"] = attribution => attribution.Prediction = ByteString.Empty,
        ["baseline_prediction has 0 elements"] = attribution => attribution.BaselinePrediction = ByteString.Empty,
        ["relative_gap has 0 elements"] = attribution => attribution.RelativeGap = ByteString.Empty,
        ["converged has 0 elements"] = attribution => attribution.Converged.Clear(),
        ["nodes has 2 elements"] = attribution => attribution.Nodes.Add(1),
        ["attention has 0 elements, expected 1"] = attribution => attribution.Internals.Add(new V1.Internal { Name = "attention", Labels = { "0" } }),
        ["20130230 is not a date"] = attribution => attribution.Sessions[1] = 20130230,
    };

    public static TheoryData<string> Forecasts => [.. BrokenForecasts.Keys];

    public static TheoryData<string> Attributions => [.. BrokenAttributions.Keys];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private static PredictionRequest Request => new("small", Bars);

    [Fact]
    public async Task Unknown_enum_values_are_Unknown()
    {
        var wire = Explained();
        wire.RowKinds[0] = (V1.RowKind)99;
        wire.Method = (V1.ExplainMethod)99;
        wire.Internals.Add(new V1.Internal { Name = "mood", Axis = (V1.InternalAxis)99, Labels = { "0" }, Values = Doubles(1) });
        wire.Skill = new V1.Skill { Verdict = (V1.SkillVerdict)99 };
        var attribution = (await Client(new V1.ExplainResponse { Attributions = { wire } }).ExplainManyAsync(new(Request, []), Token))[0];
        Assert.Equal((RowKind.Unknown, "unknown"), (attribution.RowKinds[0], attribution.Method));
        Assert.Equal((InternalAxis.Unknown, SkillVerdict.Unknown), (attribution.Internals[0].Axis, attribution.Skill!.Verdict));
        var info = new V1.ModelInfo { Covariates = { new V1.CovariateInfo { Group = (V1.CovariateGroup)99 } } };
        var model = await Client(new V1.GetModelResponse { Model = info }).GetModelAsync("small", Token);
        Assert.Equal(CovariateGroup.Unknown, model.Covariates[0].Group);
    }

    [Theory]
    [InlineData(1, "integrated-gradients")]
    [InlineData(2, "tree-shap")]
    [InlineData(3, "occlusion")]
    [InlineData(4, "shapley")]
    public async Task Methods_of_explanations_have_the_names_of_the_server(int number, string name)
    {
        var wire = Explained();
        wire.Method = (V1.ExplainMethod)number;
        var attributions = await Client(new V1.ExplainResponse { Attributions = { wire } }).ExplainManyAsync(new(Request, []), Token);
        Assert.Equal(name, attributions[0].Method);
    }

    [Fact]
    public async Task An_error_with_missing_or_unknown_parts_is_read()
    {
        var results = new V1.PredictResponse { Results = { new V1.Result { Error = new V1.Error { Code = 99, Reason = "NEW" } }, new V1.Result { Error = new V1.Error() } } };
        var errors = (await Client(results).PredictManyAsync([Request, Request], Token)).Select(result => result.Error!).ToArray();
        Assert.Equal([(QuantraStatus.Unknown, "NEW"), (QuantraStatus.Unknown, QuantraReason.Error)], errors.Select(error => (error.Code, error.Reason)));
        Assert.All(errors, error => Assert.Equal("the predictor returned an error without a message", error.Message));
        var forecast = Forecasted();
        forecast.Refusals.AddRange([new V1.SymbolError { Symbol = "A" }, new V1.SymbolError { Symbol = "A" }]);
        var read = await Client(Answer(forecast)).PredictAsync(Request, Token);
        Assert.Equal(QuantraReason.Error, Assert.Single(read.Refusals).Value.Reason);
    }

    [Theory]
    [MemberData(nameof(Forecasts))]
    public async Task An_invalid_forecast_fails_only_its_own_request(string problem)
    {
        var broken = Forecasted();
        BrokenForecasts[problem](broken);
        var results = await Client(Answer(broken, Forecasted())).PredictManyAsync([Request with { RequestId = "1" }, Request], Token);
        AssertUnreadable(problem, results[0].Error!);
        Assert.Equal(2, results[1].GetForecast().Values.Length);
    }

    [Fact]
    public async Task A_result_with_nothing_in_it_is_an_error()
    {
        var results = await Client(new V1.PredictResponse { Results = { new V1.Result() } }).PredictManyAsync([Request], Token);
        AssertUnreadable("neither a forecast nor an error", results[0].Error!);
    }

    [Theory]
    [MemberData(nameof(Attributions))]
    public async Task An_invalid_explanation_is_an_error(string problem)
    {
        var broken = Explained();
        BrokenAttributions[problem](broken);
        var client = Client(new V1.ExplainResponse { Attributions = { broken } });
        AssertUnreadable(problem, (await Assert.ThrowsAsync<QuantraException>(() => client.ExplainAsync(new(Request, 5), Token))).Error);
    }

    [Fact]
    public async Task An_invalid_model_description_is_an_error()
    {
        var missing = await Assert.ThrowsAsync<QuantraException>(() => Client(new V1.GetModelResponse()).GetModelAsync("small", Token));
        AssertUnreadable("it has no model", missing.Error);
        var unending = new V1.ListModelsResponse { Models = { new V1.ModelInfo { CalendarEnds = 20309999 } } };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => Client(unending).ListModelsAsync(Token));
        AssertUnreadable("20309999 is not a date", failure.Error);
    }

    private static void AssertUnreadable(string problem, QuantraError error)
    {
        Assert.Equal((QuantraStatus.Internal, QuantraReason.Internal), (error.Code, error.Reason));
        Assert.StartsWith("the response is invalid: ", error.Message, StringComparison.Ordinal);
        Assert.Contains(problem, error.Message, StringComparison.Ordinal);
    }

    private static QuantraClient Client(object answer) => new(new FixedResponseInvoker(Task.FromResult(answer)), new QuantraClientOptions());

    private static V1.PredictResponse Answer(params V1.Forecast[] forecasts) =>
        new() { Results = { forecasts.Select(forecast => new V1.Result { Forecast = forecast }) } };

    /// <summary>A forecast of one symbol, one horizon and two quantiles.</summary>
    private static V1.Forecast Forecasted() => new()
    {
        Symbols = { "A" },
        AsOfSession = 20130301,
        TargetSessions = { 20130304 },
        Horizons = { 1 },
        Quantiles = { 0.1, 0.9 },
        Values = Doubles(2),
    };

    /// <summary>An attribution of one symbol, one input and two sessions.</summary>
    private static V1.Attribution Explained() => new()
    {
        Symbols = { "A" },
        RowNames = { "return_1" },
        RowKinds = { V1.RowKind.Observed },
        PerRow = Doubles(1),
        Sessions = { 20130228, 20130301 },
        PerTime = Doubles(2),
        Prediction = Doubles(1),
        BaselinePrediction = Doubles(1),
        RelativeGap = Doubles(1),
        Converged = { true },
        Nodes = { 3 },
    };

    private static ByteString Doubles(int count) => ByteString.CopyFrom(new byte[sizeof(double) * count]);
}
