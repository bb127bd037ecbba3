using Quantra.Client.Tests;
using Quantra.Desktop.ViewModels;

namespace Quantra.Client.Hosting.Tests.Desktop;

/// <summary>The main window of the desktop sample: its server, and the training of a new model.</summary>
public sealed class MainViewTests(HostingFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_model_is_trained_on_the_open_file_and_forecasts_as_soon_as_the_server_has_it()
    {
        var models = fixture.PathOf("of the window");
        CopyModels(models);
        await using var server = new QuantraServer(fixture.Options(options =>
        {
            options.Models = models;
            options.Arguments.Add("--watch");
        }));
        await using var trainer = new QuantraTrainer(new QuantraTrainerOptions { PythonEnvironment = fixture.Environment });
        await using var client = server.OpenClient();
        using var window = new SingleThreadContext();
        await window.RunAsync(async () =>
        {
            using var view = new MainViewModel(client, client.Ledger, server, trainer, models) { Arguments = ["--epochs", "1", "--hidden", "4", "--layers", "1", "--splits", "rolling:60,120"] };
            Assert.Equal(("server is stopped", true, false), (view.Server.Text, view.Server.Start.CanExecute(null), view.Train.CanExecute(null)));
            var following = view.RunAsync();
            await view.Server.Start.RunAsync();
            await Until(view.Forecast, () => view.Forecast.Models.Count > 0);
            Assert.Equal(("server ready", "", false), (view.Server.Text, view.Server.Reason, view.Server.Start.CanExecute(null)));
            await view.Forecast.OpenAsync(fixture.PathOf("history.csv"));
            var shares = new List<double>();
            view.Training.PropertyChanged += (_, _) => shares.Add(view.Training.Share);
            var training = view.Train.RunAsync();
            Assert.True(view.Training.IsRunning);
            Assert.True(view.Training.Cancel.CanExecute(null));
            await training;
            await view.Forecast.PendingForecast;
            Assert.False(view.Forecast.Problem.IsShown, view.Forecast.Problem.Text);
            Assert.Contains("this server has no ledger", view.Forecast.Past.Note, StringComparison.Ordinal);
            Assert.Contains(1.0, shares);
            Assert.False(view.Training.IsRunning);
            Assert.StartsWith(Path.Combine(models, "history", "1"), view.Training.Text, StringComparison.Ordinal);
            Assert.Equal("history", view.Forecast.Model!.Name);
            Assert.Equal("AAPL · history@1 · as of 2013-03-01", view.Forecast.Fan.Heading);
            view.Dispose();
            await following;
        });
    }

    [Fact]
    public async Task A_failed_server_has_a_reason_and_can_be_started_again()
    {
        var models = fixture.PathOf("comes later");
        await using var server = new QuantraServer(fixture.Options(options => options.Models = models));
        await using var trainer = new QuantraTrainer();
        await using var client = server.OpenClient();
        using var window = new SingleThreadContext();
        await window.RunAsync(async () =>
        {
            using var view = new MainViewModel(client, client.Ledger, server, trainer, models);
            var following = view.RunAsync();
            await view.Server.Start.RunAsync();
            await Until(view.Server, () => view.Server.State == QuantraServerState.Failed);
            Assert.Equal(("server has failed", true), (view.Server.Text, view.Server.Start.CanExecute(null)));
            Assert.Contains("there is no such folder", view.Server.Reason, StringComparison.Ordinal);
            CopyModels(models);
            await view.Server.Start.RunAsync();
            await Until(view.Forecast, () => view.Forecast.Models.Count > 0);
            view.Dispose();
            await following;
        });
    }

    private static async Task Until(Quantra.Desktop.Mvvm.ObservableObject view, Func<bool> condition)
    {
        var met = new TaskCompletionSource();
        view.PropertyChanged += (_, _) =>
        {
            if (condition())
                met.TrySetResult();
        };
        if (!condition())
            await met.Task.WaitAsync(Token);
    }

    private void CopyModels(string folder)
    {
        foreach (var file in Directory.EnumerateFiles(fixture.Models, "*", SearchOption.AllDirectories))
        {
            var copy = Path.Combine(folder, Path.GetRelativePath(fixture.Models, file));
            Directory.CreateDirectory(Path.GetDirectoryName(copy)!);
            File.Copy(file, copy);
        }
    }
}
