using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>The window: forecasts, the server that makes them, and trainings of new models.</summary>
/// <remarks>Used on the window's thread alone, like all view models; no call holds that thread.</remarks>
public sealed class MainViewModel : IDisposable
{
    private readonly string _models;

    [SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "without a timer the source holds nothing")]
    private readonly CancellationTokenSource _closing = new();

    /// <param name="predictor">Answers; it stays the caller's.</param>
    /// <param name="server">Of the predictor; it stays the caller's.</param>
    /// <param name="trainer">It stays the caller's.</param>
    /// <param name="models">The folder that the server serves, and follows.</param>
    public MainViewModel(IStockPredictor predictor, QuantraServer server, QuantraTrainer trainer, string models)
    {
        _models = models;
        Forecast = new ForecastViewModel(predictor);
        Server = new ServerViewModel(server);
        Training = new TrainingViewModel(trainer);
        Train = new AsyncCommand(TrainAsync, () => Forecast.File is not null);
        Server.BecameReady += async (_, _) => await Forecast.ConnectAsync();
        Forecast.PropertyChanged += (_, _) => Train.Refresh();
    }

    /// <summary>Forecasts of a file's symbols.</summary>
    public ForecastViewModel Forecast { get; }

    /// <summary>The server.</summary>
    public ServerViewModel Server { get; }

    /// <summary>Further flags of a training, such as "--epochs" and "20".</summary>
    public IReadOnlyList<string> Arguments { get; init; } = [];

    /// <summary>The training that goes on, if any.</summary>
    public TrainingViewModel Training { get; }

    /// <summary>Trains a model named as the file of bars, as its next version.</summary>
    public AsyncCommand Train { get; }

    /// <summary>Follows the server until the window is closed.</summary>
    public Task RunAsync() => Server.FollowAsync(_closing.Token);

    /// <inheritdoc/>
    public void Dispose()
    {
        _closing.Cancel();
        Forecast.Dispose();
    }

    private async Task TrainAsync() => await Forecast.Problem.WatchAsync(async () =>
    {
        var name = Path.GetFileNameWithoutExtension(Forecast.File!);
        var version = NewestVersion(Path.Combine(_models, name)) + 1;
        var folder = Path.Combine(_models, name, version.ToString(CultureInfo.InvariantCulture));
        var training = new StockTraining { Bars = Forecast.File!, Out = folder, Model = "lstm", Calendar = "XNYS", Arguments = Arguments };
        try
        {
            if (await Training.TrainAsync(training))
                await Forecast.WaitForAsync(name, version, _closing.Token);
        }
        catch (OperationCanceledException) when (_closing.IsCancellationRequested)
        {
            // The window is closed.
        }
    });

    /// <summary>The newest version in a model's folder; 0 = none.</summary>
    private static int NewestVersion(string model)
    {
        var versions = Directory.Exists(model) ? Directory.EnumerateDirectories(model).Select(Path.GetFileName) : [];
        return versions.Select(name => int.TryParse(name, CultureInfo.InvariantCulture, out var number) ? number : 0).DefaultIfEmpty().Max();
    }
}
