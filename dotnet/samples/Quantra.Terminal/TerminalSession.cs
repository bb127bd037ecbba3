using Quantra.Client;
using Quantra.Terminal.Live;
using Spectre.Console;

namespace Quantra.Terminal;

/// <summary>Lets the user choose a symbol and a model, and shows the forecast.</summary>
internal sealed class TerminalSession(IAnsiConsole console, IStockPredictor predictor)
{
    public async Task ShowAsync(BarPanel bars, string? modelName, string? symbol, CancellationToken cancellationToken)
    {
        var (model, series, read) = await ChooseAsync(bars, modelName, symbol, cancellationToken);
        var request = new PredictionRequest(PinVersion(model), read);
        var forecast = await predictor.PredictAsync(request, cancellationToken);
        console.Write(new ForecastView(series, forecast).Render(console.Profile.Width));
        if (model.ExplainMethods.Count == 0)
        {
            console.MarkupLineInterpolated($"[grey]no explanation: this predictor does not explain {model.Kind} models[/]");
            return;
        }

        var target = new ExplanationRequest(request, Middle(forecast.Horizons), Middle(forecast.Quantiles)) { Symbols = [series.Symbol] };
        console.Write(new ExplanationView(await predictor.ExplainAsync(target, cancellationToken)).Render(console.Profile.Width));
    }

    /// <summary>Replays the last days of one symbol, each with its earlier forecast.</summary>
    public async Task FollowAsync(BarPanel bars, string? modelName, string? symbol, LiveOptions options, CancellationToken cancellationToken)
    {
        var (model, series, read) = await ChooseAsync(bars, modelName, symbol, cancellationToken);
        var feed = new LiveFeed(read, series.Symbol, Math.Min(options.Days, read.Sessions.Length - model.BarsNeeded), options.Pace);
        await new LiveSession(console, options.Server).ShowAsync(feed.RunAsync(predictor, PinVersion(model), cancellationToken), cancellationToken);
    }

    /// <summary>Pins the version, so that a new champion does not change it.</summary>
    private static ModelReference PinVersion(ModelInfo model) => new($"{model.Name}@{model.Version}");

    private static T Middle<T>(IReadOnlyList<T> values) => values[(values.Count - 1) / 2];

    private async Task<(ModelInfo Model, BarSeries Series, BarPanel Read)> ChooseAsync(
        BarPanel bars,
        string? modelName,
        string? symbol,
        CancellationToken cancellationToken)
    {
        var model = await ModelAsync(modelName, cancellationToken);
        var series = bars.Select(symbol ?? Choose("Which symbol?", bars.Symbols, "--symbol"));
        // A model that looks across a panel also reads the other stocks.
        return (model, series, model.IsPanelModel ? bars : series.ToPanel());
    }

    private async Task<ModelInfo> ModelAsync(string? name, CancellationToken cancellationToken)
    {
        if (name is not null)
            return await predictor.GetModelAsync(name, cancellationToken);
        var models = await predictor.ListModelsAsync(cancellationToken);
        var names = models.Where(model => model.IsDefault).Select(model => model.Name).ToList();
        return await predictor.GetModelAsync(Choose("Which model?", names, "--model"), cancellationToken);
    }

    /// <summary>Returns the only choice, or the user's choice, or the first if the console is not interactive.</summary>
    private string Choose(string question, IReadOnlyList<string> choices, string option)
    {
        if (choices.Count == 1)
            return choices[0];
        if (console.Profile.Capabilities.Interactive && !Console.IsOutputRedirected && !Console.IsInputRedirected)
            return console.Prompt(new SelectionPrompt<string>().Title(question).AddChoices(choices));
        console.MarkupLineInterpolated($"[grey]{option} {choices[0]} (of {string.Join(", ", choices)})[/]");
        return choices[0];
    }
}
