using Quantra.Client;
using Quantra.Client.Embedded;
using Quantra.Client.Hosting;

namespace Quantra.Terminal;

/// <summary>A predictor, and the server that belongs to it, if the program has one of its own.</summary>
internal sealed class Door : IAsyncDisposable
{
    private readonly QuantraServer? _server;

    private Door(IStockPredictor predictor, QuantraServer? server = null) => (Predictor, _server) = (predictor, server);

    /// <summary>Whom to ask.</summary>
    public IStockPredictor Predictor { get; }

    /// <summary>Somebody's server.</summary>
    public static Door Connect(string address) => new(new QuantraClient(new Uri($"http://{address}")));

    /// <summary>Python inside this process.</summary>
    public static async Task<Door> EmbedAsync(string models, CancellationToken cancellationToken) =>
        new(await EmbeddedPredictor.OpenAsync(new() { Models = models }, cancellationToken));

    /// <summary>A server that is started here, is started again where it dies, and ends with the program.</summary>
    /// <param name="models">What it serves.</param>
    /// <param name="maxRestarts">How often it is started again within a minute, before it is given up.</param>
    /// <param name="cancellationToken">Gives up starting it.</param>
    public static async Task<Door> StartAsync(string models, int maxRestarts, CancellationToken cancellationToken)
    {
        var server = new QuantraServer(new QuantraServerOptions { Models = models, MaxRestarts = maxRestarts });
        var door = new Door(server.OpenClient(), server);
        try
        {
            await server.StartAsync(cancellationToken);
            await server.WaitUntilReadyAsync(cancellationToken);
            return door;
        }
        catch
        {
            await door.DisposeAsync();
            throw;
        }
    }

    /// <summary>Where the program's own server stands; "" = it has none.</summary>
    public string Server => _server?.Status is { } status
        ? FormattableString.Invariant($"server {status.State.ToString().ToLowerInvariant()}, restarts: {status.Restarts}{Process(status)}")
        : "";

    /// <inheritdoc/>
    public async ValueTask DisposeAsync()
    {
        await ((IAsyncDisposable)Predictor).DisposeAsync();
        if (_server is not null)
            await _server.DisposeAsync();
    }

    private static string Process(QuantraServerStatus status) => status.ProcessId is { } id ? FormattableString.Invariant($", process {id}") : "";
}
