using System.CommandLine;
using System.CommandLine.Parsing;
using Quantra.Client;
using Quantra.Terminal;
using Quantra.Terminal.Live;
using Spectre.Console;

var server = new Option<string>("--server") { Description = "HOST:PORT of a Quantra server", DefaultValueFactory = _ => "127.0.0.1:50051" };
var embedded = new Option<bool>("--embedded") { Description = "run Python inside this process instead of calling a server" };
var ownServer = new Option<bool>("--own-server") { Description = "start and supervise a server for this program only" };
var maxRestarts = new Option<int>("--max-restarts") { Description = "restarts of --own-server per minute", DefaultValueFactory = _ => 3 };
var models = new Option<string?>("--models") { Description = "folder of NAME/VERSION artifacts, or of one version: forecasts without a server and without Python, or with --embedded or --own-server" };
var model = new Option<string?>("--model") { Description = "NAME, NAME@VERSION or NAME@ALIAS; optional if there is only one model" };
var file = new Option<string>("--bars") { Description = "CSV file of daily bars", Required = true };
var symbol = new Option<string?>("--symbol") { Description = "symbol to forecast; prompted for if missing" };
var live = new Option<int?>("--live") { Description = "replay the last DAYS of the file, each with its earlier forecast", HelpName = "DAYS" };
var pace = new Option<double>("--pace") { Description = "seconds between two days of --live", DefaultValueFactory = _ => 1 };
server.Validators.Add(result => Require(result, !Uri.TryCreate($"http://{result.GetValueOrDefault<string>()}", UriKind.Absolute, out _), "HOST:PORT"));
live.Validators.Add(result => Require(result, result.GetValueOrDefault<int?>() < 1, "at least 1 day"));
pace.Validators.Add(result => Require(result, result.GetValueOrDefault<double>() is not (>= 0.001 and <= 86_400), "0.001 to 86400 seconds"));
maxRestarts.Validators.Add(result => Require(result, result.GetValueOrDefault<int>() < 0, "0 or more"));
var command = new RootCommand("Draws a forecast and explains it.")
{
    server, embedded, ownServer, maxRestarts, models, model, file, symbol, live, pace,
};

command.SetAction(async (arguments, cancellationToken) =>
{
    try
    {
        var bars = await BarPanel.ReadCsvAsync(arguments.GetValue(file)!, cancellationToken);
        await using var connection = await OpenAsync(arguments, cancellationToken);
        var console = AnsiConsole.Create(new AnsiConsoleSettings
        {
            Ansi = Console.IsOutputRedirected ? AnsiSupport.No : AnsiSupport.Detect,
        });
        var session = new TerminalSession(console, connection.Predictor);
        if (arguments.GetValue(live) is { } days)
        {
            var options = new LiveOptions(days, TimeSpan.FromSeconds(arguments.GetValue(pace)), () => connection.Server);
            await session.FollowAsync(bars, arguments.GetValue(model), arguments.GetValue(symbol), options, cancellationToken);
        }
        else
        {
            await session.ShowAsync(bars, arguments.GetValue(model), arguments.GetValue(symbol), cancellationToken);
        }

        return 0;
    }
    catch (QuantraException error)
    {
        await Console.Error.WriteLineAsync($"{error.Reason}: {error.Message}");
        return 1;
    }
});

return await command.Parse(args).InvokeAsync();

static void Require(OptionResult result, bool isWrong, string allowed)
{
    if (isWrong)
        result.AddError($"{result.Option.Name} {string.Join(' ', result.Tokens)}: expected {allowed}");
}

Task<PredictorConnection> OpenAsync(ParseResult arguments, CancellationToken cancellationToken)
{
    var folder = arguments.GetValue(models);
    if (arguments.GetValue(embedded))
        return PredictorConnection.EmbedAsync(folder ?? "models", cancellationToken);
    if (arguments.GetValue(ownServer))
        return PredictorConnection.StartAsync(folder ?? "models", arguments.GetValue(maxRestarts), cancellationToken);
    return folder is null
        ? Task.FromResult(PredictorConnection.Connect(arguments.GetValue(server)!))
        : PredictorConnection.OpenAsync(folder, cancellationToken);
}
