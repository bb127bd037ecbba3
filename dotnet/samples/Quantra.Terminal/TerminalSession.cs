using Quantra.Client;
using Quantra.Terminal.Live;
using Spectre.Console;

namespace Quantra.Terminal;

/// <summary>Asks for a symbol and a model, and shows the forecast.</summary>
internal sealed class TerminalSession(IAnsiConsole console, IStockPredictor predictor)
{
    /// <summary>Shows one symbol's forecast and its explanation.</summary>
    public async Task ShowAsync(BarPanel bars, string? modelName, string? symbol, CancellationToken cancellationToken)
    {
        var (model, series, read) = await ChooseAsync(bars, modelName, symbol, cancellationToken);
        var request = new PredictionRequest(Exactly(model), read);
        var forecast = await predictor.PredictAsync(request, cancellationToken);
        var horizon = Middle(forecast.Horizons);
        var reasons = await predictor.ExplainAsync(
            new ExplanationRequest(request, horizon, Middle(forecast.Quantiles)) { Symbols = [series.Symbol] },
            cancellationToken);
        console.Write(new ForecastView(series, forecast).Render(console.Profile.Width));
        console.Write(new ReasonsView(reasons).Render(console.Profile.Width));
    }

    /// <summary>Shows the last days of one symbol as they would have come in, each with what had been forecast for it.</summary>
    public async Task FollowAsync(BarPanel bars, string? modelName, string? symbol, LiveOptions options, CancellationToken cancellationToken)
    {
        var (model, series, read) = await ChooseAsync(bars, modelName, symbol, cancellationToken);
        var feed = new LiveFeed(read, series.Symbol, Math.Min(options.Days, read.Sessions.Length - model.BarsNeeded), options.Pace);
        await new LiveSession(console, options.Server).ShowAsync(feed.RunAsync(predictor, Exactly(model), cancellationToken), cancellationToken);
    }

    /// <summary>The version that was looked at, not one that becomes the champion meanwhile.</summary>
    private static ModelReference Exactly(ModelInfo model) => new($"{model.Name}@{model.Version}");

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

    /// <summary>The only choice, or the user's, or the first if there is no user to ask.</summary>
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
