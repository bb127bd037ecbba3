using System.CommandLine;
using Quantra.Client;
using Quantra.Client.Embedded;
using Quantra.Terminal;
using Spectre.Console;

var server = new Option<string>("--server") { Description = "HOST:PORT of a Quantra server", DefaultValueFactory = _ => "127.0.0.1:50051" };
var embedded = new Option<bool>("--embedded") { Description = "run Python inside this process instead of calling a server" };
var models = new Option<string?>("--models") { Description = "folder of NAME/VERSION artifacts for --embedded" };
var model = new Option<string?>("--model") { Description = "NAME, NAME@VERSION or NAME@ALIAS; not needed if there is only one model" };
var file = new Option<string>("--bars") { Description = "CSV file of daily bars", Required = true };
var symbol = new Option<string?>("--symbol") { Description = "symbol to forecast; asked for if not given" };
var command = new RootCommand("Draws a forecast and explains it.") { server, embedded, models, model, file, symbol };

command.SetAction(async (arguments, cancellationToken) =>
{
    try
    {
        var bars = await BarPanel.ReadCsvAsync(arguments.GetValue(file)!, cancellationToken);
        await using var predictor = arguments.GetValue(embedded)
            ? await EmbeddedPredictor.OpenAsync(new() { Models = arguments.GetValue(models) ?? "models" }, cancellationToken)
            : (IStockPredictor)new QuantraClient(new Uri($"http://{arguments.GetValue(server)}"));
        var console = AnsiConsole.Create(new AnsiConsoleSettings
        {
            Ansi = Console.IsOutputRedirected ? AnsiSupport.No : AnsiSupport.Detect,
        });
        var session = new TerminalSession(console, predictor);
        await session.ShowAsync(bars, arguments.GetValue(model), arguments.GetValue(symbol), cancellationToken);
        return 0;
    }
    catch (QuantraException error)
    {
        await Console.Error.WriteLineAsync($"{error.Reason}: {error.Message}");
        return 1;
    }
});

return await command.Parse(args).InvokeAsync();
