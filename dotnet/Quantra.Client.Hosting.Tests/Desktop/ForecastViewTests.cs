using System.ComponentModel;
using Quantra.Client.Testing;
using Quantra.Client.Tests;
using Quantra.Desktop.Mvvm;
using Quantra.Desktop.ViewModels;

namespace Quantra.Client.Hosting.Tests.Desktop;

/// <summary>The forecast view of the desktop sample on a UI thread, with a real server.</summary>
public sealed class ForecastViewTests(HostingFixture fixture, SupervisedServer supervised) : IClassFixture<SupervisedServer>
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private string Bars => fixture.PathOf("bars.csv");

    [Fact]
    public Task A_file_is_opened_and_its_first_symbol_is_forecast_and_explained() => OnWindowAsync(async view =>
    {
        await OpenedAsync(view);
        Assert.Equal(["small"], view.Models.Select(model => model.Name));
        Assert.Equal(["AAPL", "IBM"], view.Symbols);
        Assert.Equal("AAPL · small@1 · as of 2013-03-01", view.Fan.Heading);
        var forecast = await supervised.Client.PredictAsync(fixture.Request, Token);
        Assert.Equal(forecast.Horizons, view.Fan.Lines.Select(line => line.Days));
        Assert.StartsWith(FormattableString.Invariant($"{forecast.Price("AAPL", 1, 0.5):F2}  "), view.Fan.Lines[0].Values[1], StringComparison.Ordinal);
        Assert.Equal(["q0.1", "q0.5", "q0.9"], view.Fan.Columns);
        Assert.Equal(Skill.LineOf(forecast.Skill), view.Fan.Footer);
        Assert.NotNull(view.Reasons.Chart);
        Assert.EndsWith("(log return)", view.Reasons.Sum, StringComparison.Ordinal);
        Assert.False(view.IsBusy || view.Problem.IsShown);
    });

    [Fact]
    public Task Only_the_latest_selection_is_shown() => OnWindowAsync(async view =>
    {
        await OpenedAsync(view);
        var shown = Headings(view.Fan);
        view.Symbol = "IBM";
        view.Symbol = "AAPL";
        view.Symbol = "IBM";
        await view.PendingForecast;
        Assert.Equal(["IBM · small@1 · as of 2013-03-01"], shown);
    });

    [Fact]
    public async Task A_result_that_arrives_after_cancellation_is_not_shown()
    {
        using var window = new SingleThreadContext();
        await using var predictor = new FakeStockPredictor();
        var (answer, late) = (predictor.OnPredict, new TaskCompletionSource());
        predictor.OnPredict = async (request, _) =>
        {
            if (request.Bars!.Symbols[0] == "AAPL")
                await late.Task;
            return await answer(request, CancellationToken.None);
        };
        await window.RunAsync(async () =>
        {
            using var view = new ForecastViewModel(predictor, supervised.Client.Ledger);
            await view.ConnectAsync();
            await view.OpenAsync(Bars);
            var given = view.PendingForecast;
            view.Symbol = "IBM";
            await view.PendingForecast;
            late.SetResult();
            await given;
            Assert.StartsWith("IBM", view.Fan.Heading, StringComparison.Ordinal);
        });
    }

    [Fact]
    public Task Another_horizon_and_quantile_are_explained() => OnWindowAsync(async view =>
    {
        await OpenedAsync(view);
        var before = view.Reasons.Sum;
        var explained = Changed(view.Reasons, nameof(ExplanationViewModel.Sum));
        view.Reasons.Horizon = view.Reasons.Horizons[^1];
        await explained;
        explained = Changed(view.Reasons, nameof(ExplanationViewModel.Sum));
        view.Reasons.Quantile = 0.9;
        await explained;
        Assert.NotEqual(before, view.Reasons.Sum);
    });

    [Fact]
    public Task Past_forecasts_are_shown_with_their_outcomes_and_the_lamp() => OnWindowAsync(async view =>
    {
        await OpenedAsync(view);
        Assert.NotNull(view.Past.Chart);
        Assert.Matches("^[0-9]+ of 30 outcomes 5 days ahead were inside the band$", view.Past.Note);
        Assert.Equal(("small@1, champion: Amber, 1 test", "#b45309"), (view.Past.Lamp, view.Past.LampColor));
        view.Reasons.Horizon = 1;
        Assert.Matches("^[0-9]+ of 30 outcomes 1 day ahead were inside the band$", view.Past.Note);
        view.Symbol = "IBM";
        Assert.Equal((null, ""), (view.Past.Chart, view.Past.Note));
        await view.PendingForecast;
        Assert.Equal((null, "the ledger has too few forecasts of this symbol"), (view.Past.Chart, view.Past.Note));
    });

    [Fact]
    public Task A_file_error_is_shown_and_keeps_the_previous_forecast() => OnWindowAsync(async view =>
    {
        await OpenedAsync(view);
        var bad = fixture.PathOf("bad.csv");
        await File.WriteAllTextAsync(bad, "date,open,high,low,close,volume\n2024-01-02,1,1,1,nothing,1\n", Token);
        await view.OpenAsync(bad);
        Assert.Contains("nothing", view.Problem.Text, StringComparison.Ordinal);
        Assert.True(view.Problem.IsShown);
        Assert.Equal((Bars, "AAPL · small@1 · as of 2013-03-01"), (view.File, view.Fan.Heading));
        await view.Problem.Dismiss.RunAsync();
        Assert.Equal((false, ""), (view.Problem.IsShown, view.Problem.Text));
    });

    [Fact]
    public Task The_reason_of_a_symbol_without_a_forecast_is_shown() => OnWindowAsync(async view =>
    {
        var file = fixture.PathOf("short.csv");
        await File.WriteAllLinesAsync(file, Lines((await BarPanel.ReadCsvAsync(Bars, Token)).Last(5)), Token);
        await view.ConnectAsync();
        await view.OpenAsync(file);
        await view.PendingForecast;
        Assert.Equal(QuantraReason.TooFewBars, view.Problem.Error!.Reason);
        Assert.Null(view.Fan.Chart);
        Assert.Equal("", view.Fan.Heading);
        await view.OpenAsync(Bars);
        await view.PendingForecast;
        Assert.False(view.Problem.IsShown);
        Assert.NotNull(view.Fan.Chart);
    });

    [Fact]
    public Task The_last_days_are_replayed_until_another_selection() => OnWindowAsync(async view =>
    {
        await OpenedAsync(view);
        var shown = Headings(view.Fan);
        await view.Replay.RunAsync();
        var sessions = (await BarPanel.ReadCsvAsync(Bars, Token)).Sessions.Span[^31..].ToArray();
        Assert.Equal(sessions.Select(day => day.ToString("yyyy-MM-dd", null)), shown.Select(heading => heading[^10..]));
        Assert.False(view.IsBusy || view.Problem.IsShown);
        var replaying = view.Replay.RunAsync();
        Assert.False(view.Replay.CanExecute(null));
        view.Symbol = "IBM";
        await view.PendingForecast;
        await replaying;
        Assert.StartsWith("IBM", view.Fan.Heading, StringComparison.Ordinal);
        Assert.True(view.Replay.CanExecute(null));
    });

    [Fact]
    public async Task An_unknown_server_name_is_reported()
    {
        using var window = new SingleThreadContext();
        await using var client = new QuantraClient(new Uri("http://127.0.0.1:1"), new QuantraClientOptions { MaxAttempts = 1 });
        await window.RunAsync(async () =>
        {
            using var view = new ForecastViewModel(client, client.Ledger);
            await view.ConnectAsync();
            Assert.Equal(QuantraReason.Unavailable, view.Problem.Error!.Reason);
            await view.OpenAsync(Bars);
            Assert.Equal(["AAPL", "IBM"], view.Symbols);
            Assert.Null(view.Fan.Chart);
        });
    }

    /// <summary>Reads the lines of a file.</summary>
    private static IEnumerable<string> Lines(BarPanel bars)
    {
        yield return "symbol,date,open,high,low,close,volume";
        foreach (var symbol in bars.Symbols)
        {
            var one = bars.Select(symbol);
            for (var day = 0; day < one.Sessions.Length; day++)
            {
                yield return FormattableString.Invariant(
                    $"{symbol},{one.Sessions.Span[day]:yyyy-MM-dd},{one.Open.Span[day]},{one.High.Span[day]},{one.Low.Span[day]},{one.Close.Span[day]},{one.Volume.Span[day]}");
            }
        }
    }

    /// <summary>Records the headings from now on.</summary>
    private static List<string> Headings(FanViewModel fan)
    {
        var shown = new List<string>();
        fan.PropertyChanged += (_, change) =>
        {
            if (change.PropertyName == nameof(FanViewModel.Heading) && fan.Heading.Length > 0)
                shown.Add(fan.Heading);
        };
        return shown;
    }

    private static Task Changed(ObservableObject view, string property)
    {
        var changed = new TaskCompletionSource();
        view.PropertyChanged += OnChanged;
        return changed.Task;

        void OnChanged(object? sender, PropertyChangedEventArgs change)
        {
            if (change.PropertyName != property || ((ExplanationViewModel)view).Sum.Length == 0)
                return;
            view.PropertyChanged -= OnChanged;
            changed.SetResult();
        }
    }

    private async Task OpenedAsync(ForecastViewModel view)
    {
        await view.ConnectAsync();
        await view.OpenAsync(Bars);
        await view.PendingForecast;
    }

    /// <summary>Runs work with a view on a UI thread, and checks that changes are raised only there.</summary>
    private async Task OnWindowAsync(Func<ForecastViewModel, Task> work)
    {
        using var window = new SingleThreadContext();
        var elsewhere = 0;
        await window.RunAsync(async () =>
        {
            using var view = new ForecastViewModel(supervised.Client, supervised.Client.Ledger) { Pace = TimeSpan.Zero };
            foreach (var part in new ObservableObject[] { view, view.Fan, view.Reasons, view.Past, view.Problem })
                part.PropertyChanged += (_, _) => elsewhere += window.IsCurrent ? 0 : 1;
            await work(view);
        });
        Assert.Equal(0, elsewhere);
    }
}
