using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>The main window: forecasts, the server, and trainings.</summary>
/// <remarks>Used only on the UI thread, like all view models. Calls never block that thread.</remarks>
public sealed class MainViewModel : IDisposable
{
    private readonly string _models;

    [SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "a token source without a timer holds no resources")]
    private readonly CancellationTokenSource _closing = new();

    /// <param name="predictor">The predictor. The caller disposes it.</param>
    /// <param name="ledger">The ledger of the server.</param>
    /// <param name="server">The server of the predictor. The caller disposes it.</param>
    /// <param name="trainer">The trainer. The caller disposes it.</param>
    /// <param name="models">The folder that the server serves and watches.</param>
    public MainViewModel(IStockPredictor predictor, IForecastLedger ledger, QuantraServer server, QuantraTrainer trainer, string models)
    {
        _models = models;
        Forecast = new ForecastViewModel(predictor, ledger);
        Server = new ServerViewModel(server);
        Training = new TrainingViewModel(trainer);
        Train = new AsyncCommand(TrainAsync, () => Forecast.File is not null);
        Server.BecameReady += async (_, _) => await Forecast.ConnectAsync();
        Forecast.PropertyChanged += (_, _) => Train.Refresh();
    }

    public ForecastViewModel Forecast { get; }

    public ServerViewModel Server { get; }

    /// <summary>More flags of a training, for example "--epochs" and "20".</summary>
    public IReadOnlyList<string> Arguments { get; init; } = [];

    /// <summary>The current training.</summary>
    public TrainingViewModel Training { get; }

    /// <summary>Trains the next version of a model that is named after the file of bars.</summary>
    public AsyncCommand Train { get; }

    /// <summary>Follows the server's status until the window closes.</summary>
    public Task RunAsync() => Server.FollowAsync(_closing.Token);

    /// <inheritdoc/>
    public void Dispose()
    {
        _closing.Cancel();
        Forecast.Dispose();
    }

    private async Task TrainAsync() => await Forecast.Problem.CatchAsync(async () =>
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
            // the window was closed
        }
    });

    /// <summary>Returns the newest version in a model's folder; 0 = none.</summary>
    private static int NewestVersion(string model)
    {
        var versions = Directory.Exists(model) ? Directory.EnumerateDirectories(model).Select(Path.GetFileName) : [];
        return versions.Select(name => int.TryParse(name, CultureInfo.InvariantCulture, out var number) ? number : 0).DefaultIfEmpty().Max();
    }
}
