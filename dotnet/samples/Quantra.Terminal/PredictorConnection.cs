using Quantra.Client;
using Quantra.Client.Embedded;
using Quantra.Client.Hosting;
using Quantra.Client.Managed;

namespace Quantra.Terminal;

/// <summary>A predictor, and the server that belongs to it if the program has started one.</summary>
internal sealed class PredictorConnection : IAsyncDisposable
{
    private readonly QuantraServer? _server;

    private PredictorConnection(IStockPredictor predictor, QuantraServer? server = null) => (Predictor, _server) = (predictor, server);

    public IStockPredictor Predictor { get; }

    /// <summary>Connects to a running server.</summary>
    public static PredictorConnection Connect(string address) => new(new QuantraClient(new Uri($"http://{address}")));

    /// <summary>Computes forecasts from a folder, without Python.</summary>
    public static async Task<PredictorConnection> OpenAsync(string folder, CancellationToken cancellationToken) =>
        new(await ManagedPredictor.OpenAsync(folder, cancellationToken));

    /// <summary>Runs Python inside this process.</summary>
    public static async Task<PredictorConnection> EmbedAsync(string models, CancellationToken cancellationToken) =>
        new(await EmbeddedPredictor.OpenAsync(new() { Models = models }, cancellationToken));

    /// <summary>Starts and supervises a server that ends with the program.</summary>
    /// <param name="models">Folder of models.</param>
    /// <param name="maxRestarts">Restarts per minute before the server has failed.</param>
    /// <param name="cancellationToken">Cancels the start.</param>
    public static async Task<PredictorConnection> StartAsync(string models, int maxRestarts, CancellationToken cancellationToken)
    {
        var server = new QuantraServer(new QuantraServerOptions { Models = models, MaxRestarts = maxRestarts });
        var connection = new PredictorConnection(server.OpenClient(), server);
        try
        {
            await server.StartAsync(cancellationToken);
            await server.WaitUntilReadyAsync(cancellationToken);
            return connection;
        }
        catch
        {
            await connection.DisposeAsync();
            throw;
        }
    }

    /// <summary>Status of the program's own server; "" = it has none.</summary>
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
