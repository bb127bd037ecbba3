using System.Collections;
using System.Reflection;
using Google.Protobuf;
using Grpc.Core;
using Quantra.Client.Transport;
using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>Results that are shared within a program cannot be modified, not even by casts.</summary>
public sealed class ReadOnlyResponseTests
{
    private static readonly V1.Error Refused = new()
    {
        Code = (int)QuantraStatus.InvalidArgument,
        Reason = QuantraReason.TooFewBars,
        Metadata = { ["have"] = "1" },
    };

    [Fact]
    public void The_lists_of_a_forecast_are_read_only()
    {
        var forecast = ResponseReader.Forecast(new V1.Forecast
        {
            Symbols = { "AAPL", "IBM" },
            TargetSessions = { 20130304 },
            Horizons = { 1 },
            Quantiles = { 0.5 },
            Values = Doubles(2),
            Warnings = { "late" },
            Refusals = { new V1.SymbolError { Symbol = "IBM", Error = Refused } },
        });
        AssertReadOnly(forecast);
        AssertReadOnly(forecast.Refusals["IBM"]);
    }

    [Fact]
    public void The_lists_of_an_attribution_are_read_only()
    {
        var attribution = ResponseReader.Attribution(new V1.Attribution
        {
            Symbols = { "AAPL" },
            RowNames = { "return_1" },
            RowKinds = { V1.RowKind.Observed },
            PerRow = Doubles(1),
            Prediction = Doubles(1),
            BaselinePrediction = Doubles(1),
            RelativeGap = Doubles(1),
            Sessions = { 20130301 },
            Converged = { true },
            Nodes = { 3 },
            Warnings = { "late" },
            Internals = { new V1.Internal { Name = "attention", Labels = { "0" }, Values = Doubles(1) } },
            Refusals = { new V1.SymbolError { Symbol = "AAPL", Error = Refused } },
        });
        AssertReadOnly(attribution);
        AssertReadOnly(attribution.Internals[0]);
    }

    [Fact]
    public void The_lists_of_a_model_description_are_read_only()
    {
        var feature = new V1.FeatureInfo { Name = "return_1" };
        var model = ResponseReader.Model(new V1.ModelInfo
        {
            Aliases = { "champion" },
            ObservedFeatures = { feature },
            KnownFeatures = { feature },
            StaticFeatures = { feature },
            Covariates = { new V1.CovariateInfo { Name = "sector", Categories = { "Media" } } },
            Horizons = { 1 },
            Quantiles = { 0.5 },
            ExplainMethods = { V1.ExplainMethod.IntegratedGradients },
        });
        AssertReadOnly(model);
        AssertReadOnly(model.Covariates[0]);
    }

    [Fact]
    public void The_lists_of_global_explanations_and_pushes_are_read_only()
    {
        var known = ResponseReader.Progress(new V1.ExplainGlobalProgress
        {
            Targets = { new V1.TargetImportance { RowNames = { "return_1" }, RowKinds = { V1.RowKind.Observed } } },
            Refusals = { new V1.Refusal { Symbol = "IBM", Error = Refused } },
        });
        AssertReadOnly(known);
        AssertReadOnly(known.Targets[0]);
        AssertReadOnly(StreamResponseReader.Push(new V1.PredictStreamResponse { Ack = new V1.Ack { WaitingFor = { "IBM" } } }));
    }

    [Fact]
    public void The_lists_of_a_ledger_are_read_only()
    {
        AssertReadOnly(LedgerReader.Forecast(new V1.RecordedForecast
        {
            AsOfSession = 20130301,
            BaseSession = 20130301,
            Horizons = { 1 },
            TargetSessions = { 20130304 },
            Quantiles = { 0.5 },
            Values = Doubles(1),
            Outcomes = { new V1.RecordedOutcome { Session = 20130304 } },
        }));
        var test = new V1.TestHealth { Session = 20130301 };
        var health = LedgerReader.Health(new V1.GetHealthResponse { Models = { new V1.ModelHealth { Tests = { test } } } });
        AssertReadOnly(health);
        AssertReadOnly(health.Models[0]);
        AssertReadOnly(LedgerReader.Comparison(new V1.CompareVersionsResponse { Symbols = { "AAPL" } }));
        AssertReadOnly(LedgerReader.Promotion(new V1.PromoteVersionResponse { Gates = { new V1.GateResult() } }));
    }

    [Fact]
    public void The_metadata_of_an_error_are_read_only()
    {
        var info = new Rpc.ErrorInfo { Domain = "quantra", Reason = QuantraReason.TooFewBars, Metadata = { ["have"] = "1" } };
        var status = new Rpc.Status { Details = { Google.Protobuf.WellKnownTypes.Any.Pack(info) } };
        AssertReadOnly(StatusReader.ErrorOrNull(status.ToByteArray())!);
    }

    [Fact]
    public void Covariates_None_is_read_only()
    {
        var observed = (IDictionary<string, ReadOnlyMemory<double>>)Covariates.None.Observed;
        Assert.Throws<NotSupportedException>(() => observed.Add("rate", default));
        AssertReadOnly(Covariates.None);
        Assert.True(Covariates.None.IsEmpty);
    }

    [Fact]
    public async Task The_list_of_results_is_read_only()
    {
        var planning = new PanelPlanner(new ScriptedUnaryTransport { IsUnusable = _ => true }, new());
        var one = new PredictionRequest("small", new BarPanel
        {
            Symbols = ["A"],
            Sessions = default,
            Open = default,
            High = default,
            Low = default,
            Close = default,
            Volume = default,
        });
        PredictionRequest[][] cases = [[one], [one, one with { Model = "other" }]];
        foreach (var requests in cases)
        {
            var results = await PredictorCalls.PredictManyAsync(new ActiveCalls(), this, requests, planning, CancellationToken.None);
            Assert.Equal((requests.Length, true), (results.Count, IsReadOnly(results)));
        }
    }

    private static ByteString Doubles(int count) => ByteString.CopyFrom(new byte[sizeof(double) * count]);

    /// <summary>Checks that lists and dictionaries of a result cannot be modified after a cast.</summary>
    private static void AssertReadOnly(object answer)
    {
        var collections = answer.GetType().GetProperties(BindingFlags.Public | BindingFlags.Instance)
            .Select(property => (property.Name, Value: property.GetValue(answer)))
            .Where(one => one.Value is IEnumerable and not string)
            .ToList();
        Assert.NotEmpty(collections);
        Assert.All(collections, one => Assert.True(IsReadOnly(one.Value!), $"{one.Name} can be written to"));
    }

    /// <summary>Whether a list is mutable. Arrays claim to be read-only lists but allow setting elements.</summary>
    private static bool IsReadOnly(object collection) => collection switch
    {
        Array array => array.Length == 0,
        IList list => list.IsReadOnly,
        IDictionary dictionary => dictionary.IsReadOnly,
        _ => false,
    };
}
