using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Quantra.Supervised;

// A program that supervises its own server and prints a forecast every second, even while the server restarts.
//     dotnet run --project samples/Quantra.Supervised -- --Server:Models=models --Bars=bars.csv --Model=demo --Symbol=AAPL
var builder = Host.CreateApplicationBuilder(args);
builder.Services.AddQuantraServer(builder.Configuration.GetSection("Server"));
builder.Services.AddHostedService<ForecastPrinter>();
builder.Services.AddHostedService<ServerStatusPrinter>();
await builder.Build().RunAsync();
