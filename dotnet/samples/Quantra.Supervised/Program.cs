using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Quantra.Supervised;

// A program with a server of its own: a forecast a second, whatever becomes of the server.
//     dotnet run --project samples/Quantra.Supervised -- --Server:Models=models --Bars=bars.csv --Model=demo --Symbol=AAPL
var builder = Host.CreateApplicationBuilder(args);
builder.Services.AddQuantraServer(builder.Configuration.GetSection("Server"));
builder.Services.AddHostedService<Forecasting>();
builder.Services.AddHostedService<ServerWatch>();
await builder.Build().RunAsync();
