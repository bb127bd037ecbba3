using System.IO;
using System.Windows;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Desktop.ViewModels;

namespace Quantra.Desktop;

/// <summary>
/// The application. It supervises a Quantra server; set its models, Python environment and ledger with <c>--Server:Models=FOLDER</c>,
/// <c>--Server:PythonEnvironment=FOLDER</c> and <c>--Server:Ledger=FILE</c>.
/// </summary>
public partial class App : Application
{
    private IHost? _host;

    /// <inheritdoc/>
    protected override async void OnStartup(StartupEventArgs e)
    {
        ArgumentNullException.ThrowIfNull(e);
        base.OnStartup(e);
        var builder = Host.CreateApplicationBuilder(e.Args);
        builder.Services.AddQuantraServer(options =>
        {
            var settings = builder.Configuration.GetSection("Server");
            options.Models = settings["Models"] ?? "models";
            options.PythonEnvironment = settings["PythonEnvironment"];
            options.Arguments.Add("--watch");
            options.Ledger = settings["Ledger"];
        });
        builder.Services.AddQuantraTrainer();
        builder.Services.AddSingleton(services => new MainViewModel(
            services.GetRequiredService<IStockPredictor>(),
            services.GetRequiredService<IForecastLedger>(),
            services.GetRequiredService<QuantraServer>(),
            services.GetRequiredService<QuantraTrainer>(),
            builder.Configuration["Server:Models"] ?? "models"));
        builder.Services.AddSingleton<MainWindow>();
        _host = builder.Build();
        _host.Services.GetRequiredService<MainWindow>().Show();
        await _host.StartAsync();
    }

    /// <inheritdoc/>
    protected override void OnExit(ExitEventArgs e)
    {
        // Runs on the pool, while the UI thread waits here to keep the process alive until the server has ended.
        Task.Run(async () =>
        {
            if (_host is not null)
                await _host.StopAsync();
            _host?.Dispose();
        }).GetAwaiter().GetResult();
        base.OnExit(e);
    }
}
