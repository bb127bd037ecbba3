using System.Reflection;
using System.Security.Cryptography;
using System.Text;
using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>Large panels: trimming and splitting give the results of a single call with all bars.</summary>
public sealed class PanelPlannerTests(PredictorFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    public static TheoryData<string> Panels => ["universe", "universe_events"];

    // compared with Python

    [Theory]
    [MemberData(nameof(Panels))]
    public async Task The_last_bars_give_the_forecast_of_all_bars(string name)
    {
        var panel = await BarPanel.ReadCsvAsync(fixture.PathOf($"{name}.csv"), Token);
        foreach (var predictor in new[] { fixture.Grpc, fixture.Embedded })
        {
            var forecast = await predictor.PredictAsync(new PredictionRequest("small", panel), Token);
            AssertSame(fixture.Expected.Of(name), forecast);
            var reasons = await predictor.ExplainAsync(new ExplanationRequest(new PredictionRequest("small", panel), 5), Token);
            Assert.Equal(fixture.Expected.Of($"{name}_reasons").Bits("per_row"), ExpectedResults.BitsOf(reasons.PerRow));
        }
    }

    [Fact]
    public async Task Parts_and_numbers_equal_Pythons()
    {
        var panel = await BarPanel.ReadCsvAsync(fixture.PathOf("universe.csv"), Token);
        await using var client = new QuantraClient(fixture.Address, new QuantraClientOptions { MaxRequestBytes = 60_000 });
        var forecast = await client.PredictAsync(new PredictionRequest("small", panel), Token);
        AssertSame(fixture.Expected.Of("universe_parts"), forecast);
    }

    [Fact]
    public async Task A_panel_model_rejects_a_large_panel_with_sizes_and_advice()
    {
        var panel = await BarPanel.ReadCsvAsync(fixture.PathOf("universe.csv"), Token);
        await using var client = new QuantraClient(fixture.Address, new QuantraClientOptions { MaxRequestBytes = 60_000 });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(new PredictionRequest("graph", panel), Token));
        Assert.Equal((QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge), (failure.Code, failure.Reason));
        Assert.Contains("a request may have 60000 bytes", failure.Message, StringComparison.Ordinal);
        Assert.Contains("graph@1 looks across the symbols of a panel, which therefore cannot be split; send fewer symbols", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Global_explanations_use_the_last_bars()
    {
        var panel = await BarPanel.ReadCsvAsync(fixture.PathOf("universe.csv"), Token);
        PredictionRequest whole = new("small", panel), cut = new("small", panel.Last(fixture.Expected.BarsNeeded));
        var ours = await LastAsync(whole);
        var theirs = await LastAsync(cut);
        Assert.Equal(ExpectedResults.BitsOf(theirs.Targets[0].MeanSize), ExpectedResults.BitsOf(ours.Targets[0].MeanSize));

        async Task<GlobalExplanationProgress> LastAsync(PredictionRequest request)
        {
            GlobalExplanationProgress? last = null;
            await foreach (var known in fixture.Grpc.ExplainGlobalAsync(new GlobalExplanationRequest([request], [new(5, 0.5)]), Token))
                last = known;
            return last!;
        }
    }

    // with scripted responses

    [Fact]
    public async Task Only_the_last_bars_are_sent_and_the_model_is_described_once()
    {
        var (transport, planner) = Scripted();
        var request = new PredictionRequest("small", Universe(3, 150)) { RequestId = "a" };
        for (var call = 0; call < 2; call++)
            Assert.Equal("a", Assert.Single(await planner.PredictAsync([request], Token)).RequestId);
        await planner.ExplainAsync(new ExplanationRequest(request, 5).ToMany(), Token);
        Assert.Equal(1, transport.Learnt);
        Assert.All(transport.Predictions, call => Assert.Equal(Universe(3, 150).Last(100), call[0].Bars));
        Assert.Equal(100, transport.Explanations[0].Instance.Bars!.Sessions.Length);
    }

    [Fact]
    public async Task A_small_request_is_sent_unchanged()
    {
        var (transport, planner) = Scripted();
        await planner.PredictAsync([new("small", Universe(1, 150))], Token);
        Assert.Equal((0, 150), (transport.Learnt, transport.Predictions[0][0].Bars!.Sessions.Length));
    }

    [Fact]
    public async Task A_large_panel_is_split_into_several_calls_in_order()
    {
        var (transport, planner) = Scripted();
        var panel = Universe(9, 120);
        var forecast = Assert.Single(await planner.PredictAsync([new("small", panel)], Token)).GetForecast();
        Assert.Equal(["S0,S1,S2", "S3,S4,S5", "S6,S7,S8"], transport.Sent);
        Assert.Equal(panel.Symbols, forecast.Symbols);
        Assert.Equal(Enumerable.Range(0, 9).Select(row => Price(row, 119)), forecast.Values.ToArray());
        Assert.Equal(["the same of each part", "of S0", "of S3", "of S6"], forecast.Warnings);
        Assert.Equal(Convert.ToHexStringLower(SHA256.HashData(Encoding.UTF8.GetBytes(string.Join('|', transport.Sent))))[..16], forecast.ForecastId);
    }

    [Fact]
    public async Task Many_requests_share_calls_in_order()
    {
        var (transport, planner) = Scripted();
        List<int> counts = [2, 1, 9, 1];
        PredictionRequest[] requests =
        [
            .. counts.Select((count, place) => new PredictionRequest("small", Universe(count, 120)) { RequestId = $"{place}" }),
        ];
        var results = await planner.PredictAsync(requests, Token);
        Assert.Equal(["0", "1", "2", "3"], results.Select(one => one.RequestId));
        Assert.Equal(counts, results.Select(one => one.GetForecast().Symbols.Count));
        Assert.Equal(["S0,S1|S0", "S0,S1,S2", "S3,S4,S5", "S6,S7,S8|S0"], transport.Sent);
    }

    [Fact]
    public async Task All_calls_have_one_deadline()
    {
        var (transport, planner) = Scripted();
        await planner.PredictAsync([new("small", Universe(9, 120))], Token);
        Assert.Equal(4, transport.Deadlines.Count);
        Assert.Single(transport.Deadlines.Distinct());
    }

    [Fact]
    public async Task A_failed_part_fails_the_call_and_names_its_symbols()
    {
        var (transport, planner) = Scripted();
        transport.Before = _ =>
        {
            if (transport.Predictions.Count == 2)
                throw new QuantraError(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, "no room", new Dictionary<string, string> { ["retry_after_ms"] = "70" }).ToException();
        };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => planner.PredictAsync([new("small", Universe(9, 120))], Token));
        Assert.Equal((QuantraReason.QueueFull, "in the part with S3, S4, S5: no room"), (failure.Reason, failure.Message));
        Assert.Equal(("S3", "S5", 70), (failure.Metadata["first_symbol"], failure.Metadata["last_symbol"], failure.RetryAfter?.TotalMilliseconds));
        Assert.Equal(2, transport.Predictions.Count);
    }

    [Fact]
    public async Task Cancelling_stops_after_the_current_part()
    {
        var (transport, planner) = Scripted();
        using var stop = new CancellationTokenSource();
        transport.Before = _ => stop.Cancel();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => planner.PredictAsync([new("small", Universe(9, 120))], stop.Token));
        Assert.Single(transport.Predictions);
    }

    [Fact]
    public async Task A_part_without_forecasts_has_a_reason_per_symbol()
    {
        var (transport, planner) = Scripted();
        transport.IsUnusable = symbol => symbol is "S3" or "S4" or "S5" or "S8";
        var forecast = Assert.Single(await planner.PredictAsync([new("small", Universe(9, 120))], Token)).GetForecast();
        Assert.Equal(["S0,S1,S2", "S3,S4,S5", "S6,S7,S8", "S3,S4,S5,S0"], transport.Sent);
        Assert.Equal(["S3", "S4", "S5", "S8"], forecast.Refusals.Keys);
        Assert.Equal("S4: has no bar", forecast.Refusals["S4"].Message);
        Assert.Equal(9, forecast.Symbols.Count);
        Assert.Equal([3, 4, 5, 8], Enumerable.Range(0, 9).Where(row => double.IsNaN(forecast.Values.Span[row])));
    }

    [Fact]
    public async Task A_split_panel_without_any_forecast_is_rejected()
    {
        var (transport, planner) = Scripted();
        transport.IsUnusable = _ => true;
        var result = Assert.Single(await planner.PredictAsync([new("small", Universe(9, 120))], Token));
        Assert.Equal(QuantraReason.NoUsableSymbol, result.Error!.Reason);
        Assert.Equal(3, transport.Predictions.Count);
    }

    [Fact]
    public async Task A_new_version_that_reads_more_bars_gets_another_call()
    {
        var (transport, planner) = Scripted();
        PredictionRequest request = new("small", Universe(3, 200));
        await planner.PredictAsync([request], Token);
        (transport.Version, transport.Model.Version, transport.Model.WeightsHash, transport.Model.BarsNeeded) = (2, 2, "2", 110);
        Assert.Equal(2, Assert.Single(await planner.PredictAsync([request], Token)).GetForecast().Version);
        await planner.PredictAsync([request], Token);
        Assert.Equal([100, 100, 110, 110], transport.Predictions.Select(call => call[0].Bars!.Sessions.Length));
        Assert.Equal(2, transport.Learnt);
    }

    [Fact]
    public async Task A_new_version_that_reads_fewer_bars_is_accepted()
    {
        var (transport, planner) = Scripted();
        PredictionRequest request = new("small", Universe(3, 200));
        await planner.PredictAsync([request], Token);
        (transport.Version, transport.Model.Version, transport.Model.WeightsHash, transport.Model.BarsNeeded) = (2, 2, "2", 90);
        await planner.PredictAsync([request], Token);
        await planner.PredictAsync([request], Token);
        Assert.Equal([100, 100, 90], transport.Predictions.Select(call => call[0].Bars!.Sessions.Length));
    }

    [Fact]
    public async Task An_explanation_by_a_version_that_reads_more_bars_is_repeated()
    {
        var (transport, planner) = Scripted();
        var request = new ExplanationRequest(new PredictionRequest("small", Universe(3, 200)), 5).ToMany();
        await planner.ExplainAsync(request, Token);
        (transport.Version, transport.Model.Version, transport.Model.WeightsHash, transport.Model.BarsNeeded) = (2, 2, "2", 110);
        Assert.Equal(2, Assert.Single(await planner.ExplainAsync(request, Token)).Version);
        Assert.Equal([100, 100, 110], transport.Explanations.Select(call => call.Instance.Bars!.Sessions.Length));
    }

    [Fact]
    public async Task All_parts_are_from_one_version()
    {
        var (transport, planner) = Scripted();
        transport.Before = _ =>
        {
            if (transport.Predictions.Count == 3)
                (transport.Version, transport.Model.Version, transport.Model.WeightsHash) = (2, 2, "2");
        };
        var result = Assert.Single(await planner.PredictAsync([new("small", Universe(9, 120))], Token));
        Assert.Equal(2, result.GetForecast().Version);
        Assert.Equal(6, transport.Predictions.Count);
    }

    [Fact]
    public async Task All_bars_are_sent_if_the_version_keeps_changing()
    {
        var (transport, planner) = Scripted();
        transport.Version = 2;
        await planner.PredictAsync([new("small", Universe(3, 150))], Token);
        Assert.Equal([100, 100, 100, 150], transport.Predictions.Select(call => call[0].Bars!.Sessions.Length));
    }

    [Fact]
    public async Task Inconsistent_bars_are_sent_unchanged()
    {
        var (transport, planner) = Scripted();
        var panel = Universe(3, 120);
        PredictionRequest[] wrong =
        [
            new("small", panel with { Volume = panel.Volume[1..] }),
            new("small", panel) { Covariates = new Covariates { Observed = new Dictionary<string, ReadOnlyMemory<double>> { ["x"] = new double[359] } } },
        ];
        foreach (var request in wrong)
            await planner.PredictAsync([request], Token);
        Assert.Equal(wrong, transport.Predictions.Select(call => call[0]));
    }

    [Fact]
    public void Covariates_are_trimmed_and_split_with_the_bars()
    {
        var covariates = new Covariates
        {
            Observed = Named("o", Enumerable.Range(0, 8)),
            Known = Named("k", Enumerable.Range(0, 10)),
            FutureSessions = new[] { new DateOnly(2024, 3, 1) },
            Numbers = Named("n", [7, 8]),
            Categories = new Dictionary<string, IReadOnlyList<string>> { ["c"] = ["x", "y"] },
        };
        var request = new PredictionRequest("small", Universe(2, 4)) { Covariates = covariates };
        var last = PanelSlicer.TakeLast(request, request.Bars!, 2);
        Assert.Equal([2, 3, 6, 7], last.Covariates.Observed["o"].ToArray());
        Assert.Equal([2, 3, 4, 7, 8, 9], last.Covariates.Known["k"].ToArray());
        var second = PanelSlicer.Slice(last, last.Bars!, new RowRange(1, 2));
        Assert.Equal([7, 8, 9], second.Covariates.Known["k"].ToArray());
        Assert.Equal([8], second.Covariates.Numbers["n"].ToArray());
        Assert.Equal(["y"], second.Covariates.Categories["c"]);
        Assert.Equal(["S1"], second.Bars!.Symbols);
        var both = PanelSlicer.Slice(last, last.Bars!, new RowRange(1, 2, Extra: 0));
        Assert.Equal([6, 7, 2, 3], both.Covariates.Observed["o"].ToArray());
        Assert.Equal(["S1", "S0"], both.Bars!.Symbols);

        static Dictionary<string, ReadOnlyMemory<double>> Named(string name, IEnumerable<int> values) =>
            new() { [name] = values.Select(value => (double)value).ToArray() };
    }

    [Fact]
    public void A_trimmed_request_keeps_all_other_properties()
    {
        var request = new PredictionRequest("small", Universe(2, 4))
        {
            RequestId = "a",
            AllowIncompleteLastBar = true,
            AcceptSuspectBars = true,
            GapPolicy = GapPolicy.Mask,
        };
        var cut = PanelSlicer.TakeLast(request, request.Bars!, 2);
        foreach (var property in typeof(PredictionRequest).GetProperties(BindingFlags.Public | BindingFlags.Instance))
        {
            if (property.Name is not (nameof(PredictionRequest.Bars) or nameof(PredictionRequest.Covariates) or nameof(PredictionRequest.Window)))
                Assert.Equal((property.Name, property.GetValue(request)), (property.Name, property.GetValue(cut)));
            if (property.Name is not (nameof(PredictionRequest.Model) or nameof(PredictionRequest.Window) or nameof(PredictionRequest.Covariates)))
                Assert.NotEqual(property.GetValue(new PredictionRequest("small", Universe(1, 1))), property.GetValue(request));
        }
    }

    [Fact]
    public void Size_estimates_are_tight_upper_bounds()
    {
        foreach (var bars in new[] { Universe(3, 120), Universe(1, 500), Universe(40, 7) })
        {
            var request = new PredictionRequest("small", bars) { RequestId = new string('ä', 20) };
            var (bound, true_) = (RequestSizeEstimate.Of(request).Total, RequestWriter.Predict("", [request]).CalculateSize());
            Assert.InRange(bound, true_, true_ + 1500);
        }
    }

    private static (ScriptedUnaryTransport Transport, PanelPlanner PanelPlanner) Scripted()
    {
        var transport = new ScriptedUnaryTransport();
        return (transport, new PanelPlanner(transport, new()));
    }

    private static double Price(int row, int day) => (1000 * (row + 1)) + day;

    private static BarPanel Universe(int symbols, int sessions)
    {
        double[] prices = [.. Enumerable.Range(0, symbols).SelectMany(row => Enumerable.Range(0, sessions).Select(day => Price(row, day)))];
        return new BarPanel
        {
            Symbols = [.. Enumerable.Range(0, symbols).Select(row => $"S{row}")],
            Sessions = Enumerable.Range(0, sessions).Select(day => new DateOnly(2020, 1, 1).AddDays(day)).ToArray(),
            Open = prices,
            High = prices,
            Low = prices,
            Close = prices,
            Volume = prices,
        };
    }

    private static void AssertSame(ExpectedResults expected, Forecast forecast)
    {
        Assert.Equal(expected.Texts("symbols"), forecast.Symbols);
        Assert.Equal(expected.Bits("values"), ExpectedResults.BitsOf(forecast.Values));
        Assert.Equal(expected.Bits("prices"), ExpectedResults.BitsOf(forecast.Prices!.Value));
        Assert.Equal(expected.Bits("anchor_price"), ExpectedResults.BitsOf(forecast.AnchorPrice!.Value));
        Assert.Equal(expected.Text("forecast_id"), forecast.ForecastId);
        Assert.Equal(expected.Texts("warnings"), forecast.Warnings);
        Assert.Equal(expected.All("refusals").Select(one => one.Text("message")), forecast.Refusals.Values.Select(one => one.Message));
    }
}
