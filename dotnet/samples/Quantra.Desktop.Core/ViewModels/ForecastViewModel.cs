using Quantra.Client;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>The selected model, file of bars and symbol, with the forecast, its explanation and past forecasts.</summary>
/// <remarks>Used only on the UI thread, like all view models. Calls never block that thread.</remarks>
public sealed class ForecastViewModel : ObservableObject, IDisposable
{
    private const int ReplayedDays = 30;
    private static readonly TimeSpan Pause = TimeSpan.FromSeconds(0.5);

    private readonly IStockPredictor _predictor;
    private readonly LatestTask _forecasts;
    private readonly LatestTask _explanations;
    private IReadOnlyList<ModelInfo> _models = [];
    private ModelInfo? _model;
    private string? _file;
    private BarPanel? _bars;
    private string? _symbol;

    /// <param name="predictor">The predictor. The caller disposes it.</param>
    /// <param name="ledger">The ledger of the predictor's server.</param>
    public ForecastViewModel(IStockPredictor predictor, IForecastLedger ledger)
    {
        Past = new PastForecastsViewModel(ledger);
        _predictor = predictor;
        _forecasts = new LatestTask(() => OnPropertyChanged(nameof(IsBusy)));
        _explanations = new LatestTask(() => OnPropertyChanged(nameof(IsBusy)));
        Refresh = new AsyncCommand(ConnectAsync);
        Replay = new AsyncCommand(ReplayAsync, () => Request() is not null);
        PropertyChanged += (_, _) => Replay.Refresh();
        Reasons.TargetChanged += async (_, _) =>
        {
            Past.Select(Reasons.Horizon);
            await ExplainAsync();
        };
    }

    /// <summary>The champion version of each model.</summary>
    public IReadOnlyList<ModelInfo> Models
    {
        get => _models;
        private set => Set(ref _models, value);
    }

    /// <summary>The selected model. Changing it requests a forecast.</summary>
    public ModelInfo? Model
    {
        get => _model;
        set
        {
            if (Set(ref _model, value))
                RequestForecast();
        }
    }

    /// <summary>The file of bars; null = none is open.</summary>
    public string? File
    {
        get => _file;
        private set => Set(ref _file, value);
    }

    /// <summary>Symbols of the file.</summary>
    public IReadOnlyList<string> Symbols => _bars?.Symbols ?? [];

    /// <summary>The selected symbol. Changing it requests a forecast.</summary>
    public string? Symbol
    {
        get => _symbol;
        set
        {
            if (Set(ref _symbol, value))
                RequestForecast();
        }
    }

    /// <summary>Whether a request is running.</summary>
    public bool IsBusy => _forecasts.IsRunning || _explanations.IsRunning;

    public FanViewModel Fan { get; } = new();

    /// <summary>The explanation.</summary>
    public ExplanationViewModel Reasons { get; } = new();

    /// <summary>Past forecasts of the selected symbol, at the horizon that is explained.</summary>
    public PastForecastsViewModel Past { get; }

    /// <summary>The last error.</summary>
    public ErrorViewModel Problem { get; } = new();

    /// <summary>Reloads the list of models.</summary>
    public AsyncCommand Refresh { get; }

    /// <summary>Replays the last days of the file like a live feed, by pushing them to a session.</summary>
    public AsyncCommand Replay { get; }

    /// <summary>Time between two replayed days.</summary>
    public TimeSpan Pace { get; init; } = TimeSpan.FromSeconds(0.4);

    /// <summary>The running forecast. Completes when the forecast or its error is shown.</summary>
    public Task PendingForecast { get; private set; } = Task.CompletedTask;

    /// <summary>Loads the list of models. Keeps the selected model if it is still served.</summary>
    public Task ConnectAsync() => Problem.CatchAsync(async () =>
    {
        var served = await _predictor.ListModelsAsync();
        Models = [.. served.Where(model => model.IsDefault)];
        Model = Models.FirstOrDefault(model => model.Name == Model?.Name) ?? (Models.Count > 0 ? Models[0] : null);
    });

    /// <summary>Waits until a version is served, which a server with --watch does soon, and selects it.</summary>
    public async Task WaitForAsync(string name, int version, CancellationToken cancellationToken)
    {
        ModelInfo? trained;
        while ((trained = (await _predictor.ListModelsAsync(cancellationToken)).FirstOrDefault(model => model.Name == name && model.Version == version)) is null)
            await Task.Delay(Pause, cancellationToken);
        await ConnectAsync();
        if (!trained.IsDefault)
            Models = [.. Models, trained];
        Model = Models.FirstOrDefault(model => model.Name == name && model.Version == version) ?? Model;
    }

    /// <summary>Reads a CSV file of bars and forecasts its first symbol.</summary>
    public Task OpenAsync(string path) => Problem.CatchAsync(async () =>
    {
        (_bars, File) = (await BarPanel.ReadCsvAsync(path), path);
        OnPropertyChanged(nameof(Symbols));
        _symbol = null;
        Symbol = Symbols[0];
    });

    /// <inheritdoc/>
    public void Dispose()
    {
        _forecasts.Dispose();
        _explanations.Dispose();
    }

    private void RequestForecast()
    {
        _explanations.Cancel();
        Fan.Clear();
        Reasons.Clear();
        Past.Clear();
        PendingForecast = _forecasts.RunAsync(async token =>
        {
            if (Request() is not { } request)
                return;
            Reasons.Offer(Model!);
            var hasForecast = await Problem.CatchAsync(() => ForecastAsync(request, token));
            await Past.LoadAsync(Model!, Symbol!, Reasons.Horizon, token);
            if (hasForecast)
                await ExplainAsync();
        });
    }

    private async Task ForecastAsync(PredictionRequest request, CancellationToken token)
    {
        var forecast = await _predictor.PredictAsync(request, token);
        token.ThrowIfCancellationRequested();
        Fan.Show(_bars!.Select(Symbol!), forecast);
    }

    private Task ReplayAsync() => PendingForecast = _forecasts.RunAsync(token => Problem.CatchAsync(async () =>
    {
        if (Request() is not { Bars: { } bars } request)
            return;
        Reasons.Clear();
        var days = bars.Sessions[^Math.Min(ReplayedDays, bars.Sessions.Length - 1)..];
        var history = bars.Until(days.Span[0].AddDays(-1));
        await using var session = await _predictor.OpenSessionAsync(new SessionRequest(request.Model, history), token);
        Show(bars, history.Sessions.Span[^1], session.FirstForecast);
        for (var day = 0; day < days.Length; day++)
        {
            await Task.Delay(Pace, token);
            var today = days.Span[day];
            var pushed = await session.PushAsync(bars.Between(today, today), flush: true, cancellationToken: token);
            Show(bars, today, pushed.Forecast);
        }
    }));

    /// <summary>Shows the forecast of a day, unless nothing traded.</summary>
    private void Show(BarPanel bars, DateOnly day, Forecast? forecast)
    {
        if (forecast is not null)
            Fan.Show(bars.Until(day).Select(Symbol!), forecast);
    }

    private Task ExplainAsync() => _explanations.RunAsync(async token =>
    {
        if (Fan.Chart is null || Request() is not { } request)
            return;
        var explanationRequest = new ExplanationRequest(request, Reasons.Horizon, Reasons.Quantile) { Symbols = [Symbol!] };
        await Problem.CatchAsync(async () =>
        {
            var attribution = await _predictor.ExplainAsync(explanationRequest, token);
            token.ThrowIfCancellationRequested();
            Reasons.Show(attribution, Symbol!);
        });
    });

    /// <summary>Returns the current request; null = no model or symbol is selected.</summary>
    private PredictionRequest? Request()
    {
        if (Model is not { } model || _bars is not { } bars || Symbol is not { } symbol)
            return null;
        // A model that looks across a panel also reads the other stocks.
        return new PredictionRequest($"{model.Name}@{model.Version}", model.IsPanelModel ? bars : bars.Select(symbol).ToPanel());
    }
}
