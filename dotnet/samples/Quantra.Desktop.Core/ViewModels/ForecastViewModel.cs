using Quantra.Client;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>A model, a file of bars and one of its symbols, its forecast and the reasons for it.</summary>
/// <remarks>Used on the window's thread alone, like all view models; no call holds that thread.</remarks>
public sealed class ForecastViewModel : Observable, IDisposable
{
    private const int ReplayedDays = 30;
    private static readonly TimeSpan Pause = TimeSpan.FromSeconds(0.5);

    private readonly IStockPredictor _predictor;
    private readonly Latest _forecasts;
    private readonly Latest _explanations;
    private IReadOnlyList<ModelInfo> _models = [];
    private ModelInfo? _model;
    private string? _file;
    private BarPanel? _bars;
    private string? _symbol;

    /// <param name="predictor">Answers; it stays the caller's.</param>
    public ForecastViewModel(IStockPredictor predictor)
    {
        _predictor = predictor;
        _forecasts = new Latest(() => Tell(nameof(IsBusy)));
        _explanations = new Latest(() => Tell(nameof(IsBusy)));
        Refresh = new AsyncCommand(ConnectAsync);
        Replay = new AsyncCommand(ReplayAsync, () => Request() is not null);
        PropertyChanged += (_, _) => Replay.Refresh();
        Reasons.TargetChanged += async (_, _) => await ExplainAsync();
    }

    /// <summary>The models' champions.</summary>
    public IReadOnlyList<ModelInfo> Models
    {
        get => _models;
        private set => Set(ref _models, value);
    }

    /// <summary>The model that forecasts; choosing another one asks it.</summary>
    public ModelInfo? Model
    {
        get => _model;
        set
        {
            if (Set(ref _model, value))
                Ask();
        }
    }

    /// <summary>The file of bars; null = none was opened yet.</summary>
    public string? File
    {
        get => _file;
        private set => Set(ref _file, value);
    }

    /// <summary>Symbols of the file.</summary>
    public IReadOnlyList<string> Symbols => _bars?.Symbols ?? [];

    /// <summary>The symbol that is shown; choosing another one asks for its forecast.</summary>
    public string? Symbol
    {
        get => _symbol;
        set
        {
            if (Set(ref _symbol, value))
                Ask();
        }
    }

    /// <summary>Whether an answer is on its way.</summary>
    public bool IsBusy => _forecasts.IsRunning || _explanations.IsRunning;

    /// <summary>The forecast.</summary>
    public FanViewModel Fan { get; } = new();

    /// <summary>The reasons for it.</summary>
    public ReasonsViewModel Reasons { get; } = new();

    /// <summary>What went wrong last.</summary>
    public ProblemViewModel Problem { get; } = new();

    /// <summary>Asks which models there are.</summary>
    public AsyncCommand Refresh { get; }

    /// <summary>Shows the last days of the file as a live feed would: one after the other is pushed to a session.</summary>
    public AsyncCommand Replay { get; }

    /// <summary>Between two of these days.</summary>
    public TimeSpan Pace { get; init; } = TimeSpan.FromSeconds(0.4);

    /// <summary>The forecast that is on its way; completes once it is shown, or its error.</summary>
    public Task Asked { get; private set; } = Task.CompletedTask;

    /// <summary>Asks which models there are; the one that was chosen stays, where it is still served.</summary>
    public Task ConnectAsync() => Problem.WatchAsync(async () =>
    {
        var served = await _predictor.ListModelsAsync();
        Models = [.. served.Where(model => model.IsDefault)];
        Model = Models.FirstOrDefault(model => model.Name == Model?.Name) ?? (Models.Count > 0 ? Models[0] : null);
    });

    /// <summary>Asks until a version is served, as a server comes to do that follows its folder of models, and chooses its model.</summary>
    public async Task WaitForAsync(string name, int version, CancellationToken cancellationToken)
    {
        while (!(await _predictor.ListModelsAsync(cancellationToken)).Any(model => model.Name == name && model.Version == version))
            await Task.Delay(Pause, cancellationToken);
        await ConnectAsync();
        Model = Models.FirstOrDefault(model => model.Name == name) ?? Model;
    }

    /// <summary>Reads a file of bars, and forecasts its first symbol.</summary>
    /// <param name="path">A CSV file.</param>
    public Task OpenAsync(string path) => Problem.WatchAsync(async () =>
    {
        (_bars, File) = (await BarPanel.ReadCsvAsync(path), path);
        Tell(nameof(Symbols));
        _symbol = null;
        Symbol = Symbols[0];
    });

    /// <inheritdoc/>
    public void Dispose()
    {
        _forecasts.Dispose();
        _explanations.Dispose();
    }

    private void Ask()
    {
        _explanations.Cancel();
        Fan.Clear();
        Reasons.Clear();
        Asked = _forecasts.RunAsync(async cancelled =>
        {
            if (Request() is not { } request)
                return;
            Reasons.Offer(Model!);
            if (await Problem.WatchAsync(() => ForecastAsync(request, cancelled)))
                await ExplainAsync();
        });
    }

    private async Task ForecastAsync(PredictionRequest request, CancellationToken cancelled)
    {
        var forecast = await _predictor.PredictAsync(request, cancelled);
        cancelled.ThrowIfCancellationRequested();
        Fan.Show(_bars!.Select(Symbol!), forecast);
    }

    private Task ReplayAsync() => Asked = _forecasts.RunAsync(cancelled => Problem.WatchAsync(async () =>
    {
        if (Request() is not { Bars: { } bars } request)
            return;
        Reasons.Clear();
        var days = bars.Sessions[^Math.Min(ReplayedDays, bars.Sessions.Length - 1)..];
        var history = bars.Until(days.Span[0].AddDays(-1));
        await using var session = await _predictor.OpenSessionAsync(new SessionRequest(request.Model, history), cancelled);
        Show(bars, history.Sessions.Span[^1], session.FirstForecast);
        for (var day = 0; day < days.Length; day++)
        {
            await Task.Delay(Pace, cancelled);
            var today = days.Span[day];
            var pushed = await session.PushAsync(bars.Between(today, today), flush: true, cancellationToken: cancelled);
            Show(bars, today, pushed.Forecast);
        }
    }));

    /// <summary>Shows the forecast of a day, unless nothing traded.</summary>
    private void Show(BarPanel bars, DateOnly day, Forecast? forecast)
    {
        if (forecast is not null)
            Fan.Show(bars.Until(day).Select(Symbol!), forecast);
    }

    private Task ExplainAsync() => _explanations.RunAsync(async cancelled =>
    {
        if (Fan.Chart is null || Request() is not { } request)
            return;
        var asked = new ExplanationRequest(request, Reasons.Horizon, Reasons.Quantile) { Symbols = [Symbol!] };
        await Problem.WatchAsync(async () =>
        {
            var attribution = await _predictor.ExplainAsync(asked, cancelled);
            cancelled.ThrowIfCancellationRequested();
            Reasons.Show(attribution, Symbol!);
        });
    });

    /// <summary>What is asked now; null = a model or a symbol has not been chosen yet.</summary>
    private PredictionRequest? Request()
    {
        if (Model is not { } model || _bars is not { } bars || Symbol is not { } symbol)
            return null;
        // A model that looks across a panel also reads the other stocks.
        return new PredictionRequest($"{model.Name}@{model.Version}", model.IsPanelModel ? bars : bars.Select(symbol).ToPanel());
    }
}
