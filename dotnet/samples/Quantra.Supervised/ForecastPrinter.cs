using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.Hosting;
using Quantra.Client;

namespace Quantra.Supervised;

/// <summary>Requests a forecast every second and prints its median.</summary>
public sealed class ForecastPrinter(IStockPredictor predictor, IConfiguration settings, IHostApplicationLifetime lifetime) : BackgroundService
{
    protected override async Task ExecuteAsync(CancellationToken stoppingToken)
    {
        try
        {
            var bars = (await BarPanel.ReadCsvAsync(settings["Bars"] ?? "bars.csv", stoppingToken)).Select(settings["Symbol"] ?? "AAPL");
            var request = new PredictionRequest(settings["Model"] ?? "demo", bars);
            using var second = new PeriodicTimer(TimeSpan.FromSeconds(1));
            do
            {
                var forecast = await predictor.PredictAsync(request, stoppingToken);
                Console.WriteLine($"{forecast.Symbols[0]}: {Forecast.FormatPrice(forecast.Price(forecast.Symbols[0], forecast.Horizons[0], 0.5))}");
            }
            while (await second.WaitForNextTickAsync(stoppingToken));
        }
        catch (QuantraException error)
        {
            await Console.Error.WriteLineAsync($"{error.Reason}: {error.Message}");
            Environment.ExitCode = 1;
            lifetime.StopApplication();
        }
    }
}
