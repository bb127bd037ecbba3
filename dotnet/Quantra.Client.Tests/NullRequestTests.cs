namespace Quantra.Client.Tests;

/// <summary>Requests with null where the types do not allow it, as programs without nullable checks may send them.</summary>
public sealed class NullRequestTests(PredictorFixture fixture)
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

    private static readonly FeatureWindow Window = new()
    {
        Symbols = ["A"],
        EncoderLength = 1,
        FutureLength = 0,
        Observed = default,
        Location = default,
        Scale = default,
        SchemaHash = "",
    };

    private static readonly PredictionRequest Good = new("small", Bars);

    private static readonly Dictionary<string, PredictionRequest> Bad = new()
    {
        [""] = null!,
        [".Model"] = Good with { Model = null! },
        [".Model.Text"] = Good with { Model = new(null!) },
        [".RequestId"] = Good with { RequestId = null! },
        [".Covariates"] = Good with { Covariates = null! },
        [".Covariates.Observed"] = Good with { Covariates = new() { Observed = null! } },
        [".Covariates.Known"] = Good with { Covariates = new() { Known = null! } },
        [".Covariates.Numbers"] = Good with { Covariates = new() { Numbers = null! } },
        [".Covariates.Categories"] = Good with { Covariates = new() { Categories = null! } },
        [".Covariates.Categories[\"sector\"]"] = WithTexts(null!),
        [".Covariates.Categories[\"sector\"][1]"] = WithTexts(["Media", null!]),
        [".Bars.Symbols"] = new("small", Bars with { Symbols = null! }),
        [".Bars.Symbols[1]"] = new("small", Bars with { Symbols = ["A", null!] }),
        [".Bars.Calendar"] = new("small", Bars with { Calendar = null! }),
        [".Bars.Currency"] = new("small", Bars with { Currency = null! }),
        [".Window.Symbols"] = new("small", Window with { Symbols = null! }),
        [".Window.Features[0]"] = new("small", Window with { Features = [null!] }),
        [".Window.SchemaHash"] = new("small", Window with { SchemaHash = null! }),
    };

    public static TheoryData<string> Places => [.. Bad.Keys];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Theory]
    [MemberData(nameof(Places))]
    public async Task A_null_in_one_of_many_requests_is_rejected_with_its_path(string place)
    {
        foreach (var predictor in new[] { fixture.Grpc, fixture.Embedded })
        {
            var failure = await Assert.ThrowsAsync<ArgumentException>(() => predictor.PredictManyAsync([Good, Bad[place]], Token));
            Assert.Equal("requests", failure.ParamName);
            Assert.StartsWith($"requests[1]{place} is null", failure.Message, StringComparison.Ordinal);
        }
    }

    [Theory]
    [MemberData(nameof(Places))]
    public async Task A_null_in_an_instance_is_rejected_with_its_path(string place)
    {
        foreach (var predictor in new[] { fixture.Grpc, fixture.Embedded })
        {
            var failure = await Assert.ThrowsAsync<ArgumentException>(() => predictor.ExplainAsync(new(Bad[place], 5), Token));
            Assert.Equal("request", failure.ParamName);
            Assert.StartsWith($"request.Instance{place} is null", failure.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task A_null_in_a_request_is_rejected_with_its_path()
    {
        var failure = await Assert.ThrowsAsync<ArgumentException>(() => fixture.Grpc.PredictAsync(Good with { Covariates = null! }, Token));
        Assert.Equal("request", failure.ParamName);
        Assert.StartsWith("request.Covariates is null", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Null_targets_and_symbols_are_rejected_with_their_path()
    {
        var request = new ManyExplanationsRequest(Good, []);
        Assert.StartsWith("request.Targets is null", await MessageAsync(request with { Targets = null! }), StringComparison.Ordinal);
        Assert.StartsWith("request.Targets[1] is null", await MessageAsync(request with { Targets = [new(5), null!] }), StringComparison.Ordinal);
        Assert.StartsWith("request.Symbols is null", await MessageAsync(request with { Symbols = null! }), StringComparison.Ordinal);
    }

    private static PredictionRequest WithTexts(IReadOnlyList<string> texts) =>
        Good with { Covariates = new() { Categories = new Dictionary<string, IReadOnlyList<string>> { ["sector"] = texts } } };

    private async Task<string> MessageAsync(ManyExplanationsRequest request) =>
        (await Assert.ThrowsAsync<ArgumentException>(() => fixture.Grpc.ExplainManyAsync(request, Token))).Message;
}
