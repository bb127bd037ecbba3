using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;

namespace Quantra.Client.Hosting.Tests;

/// <summary>The code of the package's page, so that it compiles; <see cref="ReadmeTests"/> compares both.</summary>
internal static class ReadmeCode
{
    public static async Task HostAsync(string[] args)
    {
        var builder = Host.CreateApplicationBuilder(args);
        builder.Services.AddQuantraServer(options => options.Models = "models");
        using var host = builder.Build();
        await host.StartAsync();

        var predictor = host.Services.GetRequiredService<IStockPredictor>();
        var bars = (await BarPanel.ReadCsvAsync("bars.csv")).Select("AAPL");
        Console.WriteLine(await predictor.PredictAsync(new PredictionRequest("demo", bars)));
        await host.StopAsync();
    }

    public static async Task WatchAsync(QuantraServer server, (string Text, int Width) statusLine, CancellationToken closing)
    {
        await foreach (var status in server.WatchAsync(closing))
            statusLine.Text = $"{status.State}: {status.Error?.Message}";
    }

    public static async Task WithoutHostAsync()
    {
        await using var server = new QuantraServer(new QuantraServerOptions { Models = "models" });
        await server.StartAsync();
        await using var client = server.OpenClient();
    }

    public static void AddServer(HostApplicationBuilder builder)
    {
        builder.Services.AddQuantraServer(options =>
        {
            (options.Models, options.Ledger, options.AcceptsAdminCalls) = ("models", "ledger.db", true);
        });
    }

    public static void AddClients(IServiceCollection services, IConfiguration configuration)
    {
        services.AddQuantraClient("research", options => options.Address = new Uri("https://forecasts.example:50051"));
        services.AddQuantraClient(configuration.GetSection("Quantra"));
        services.AddHealthChecks().AddQuantra("research").AddQuantra();
    }

    public static async Task TrainAsync(Action<TrainingProgress> ShowProgress, CancellationToken cancellationToken)
    {
        await using var trainer = new QuantraTrainer();
        var training = new StockTraining { Bars = "bars.csv", Out = "models/mine/1", Model = "lstm", Calendar = "XNYS" };
        try
        {
            var model = await trainer.TrainAsync(training, new Progress<TrainingProgress>(ShowProgress), cancellationToken);
            Console.WriteLine(model);
        }
        catch (TrainingCanceledException stopped)
        {
            Console.WriteLine(stopped.Message); // names the checkpoint that Resume continues from
        }
    }
}
