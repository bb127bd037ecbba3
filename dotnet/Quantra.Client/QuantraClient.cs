using System.Collections.Concurrent;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Transport;
using Quantra.Client.Wire;
using Stub = Quantra.V1.PredictionService.PredictionServiceClient;

namespace Quantra.Client;

/// <summary>Calls a Quantra server over gRPC. Keep one client per application and share it between threads.</summary>
/// <example>
/// <code>
/// await using var client = new QuantraClient(new Uri("http://127.0.0.1:50051"));
/// var bars = BarPanel.ReadCsv("bars.csv").Select("AAPL");
/// Console.WriteLine(await client.PredictAsync(new PredictionRequest("stock", bars)));
/// </code>
/// </example>
public sealed class QuantraClient : IStockPredictor, IPathSimulator
{
    private const string Service = "quantra.v1.PredictionService";

    private readonly ClientConnection _connection;
    private readonly Stub _stub;
    private readonly CallExecutor _executor;
    private readonly ConcurrentDictionary<string, ServedModel> _models;
    private readonly PanelPlanner _planner;
    private readonly GrpcStreamTransport _streams;
    private readonly SessionRegistry _sessions;
    private readonly bool _isView;

    /// <summary>Creates a client with its own channel. The first call connects.</summary>
    /// <param name="address">For example http://127.0.0.1:50051, https://example.org:50051 or unix:/run/quantra/server.sock.</param>
    /// <exception cref="ArgumentException">The address begins with neither http:// nor https:// nor unix:.</exception>
    public QuantraClient(Uri address)
        : this(address, new QuantraClientOptions())
    {
    }

    /// <summary>Creates a client with its own channel. The first call connects.</summary>
    /// <param name="address">For example http://127.0.0.1:50051, https://example.org:50051 or unix:/run/quantra/server.sock.</param>
    /// <param name="options">Timeout, limits, retries and credentials.</param>
    /// <exception cref="ArgumentException">
    /// The address begins with neither http:// nor https:// nor unix:. Or the authority file has no certificate.
    /// </exception>
    /// <exception cref="IOException">The authority file cannot be read.</exception>
    public QuantraClient(Uri address, QuantraClientOptions options)
        : this(ClientConnection.To(address, options, Service, repeats: true))
    {
    }

    /// <summary>Creates a client on the caller's channel, with its credentials and retries. Disposing the client leaves the channel open.</summary>
    /// <param name="channel">An open channel.</param>
    /// <param name="options">Timeout and limits. Options of an own channel have no effect.</param>
    public QuantraClient(GrpcChannel channel, QuantraClientOptions options)
        : this(ClientConnection.Over(channel, options, Service))
    {
    }

    /// <summary>Creates a client on a call invoker, for example one with interceptors or a fake for tests.</summary>
    /// <param name="invoker">The call invoker.</param>
    /// <param name="options">Timeout and limits. Options of an own channel have no effect.</param>
    public QuantraClient(CallInvoker invoker, QuantraClientOptions options)
        : this(ClientConnection.Over(invoker, options, Service))
    {
    }

    private QuantraClient(ClientConnection connection)
    {
        (_connection, _executor, _stub) = (connection, connection.Executor, new Stub(connection.Invoker));
        _models = new();
        _planner = new PanelPlanner(new GrpcUnaryTransport(_stub, _executor), _models);
        _streams = new GrpcStreamTransport(_stub, _executor);
        _sessions = new SessionRegistry(_streams, connection.Calls.Ending);
        Ledger = new GrpcForecastLedger(connection, _executor, this);
    }

    private QuantraClient(QuantraClient client, CallExecutor executor, bool sharesSessions)
    {
        (_connection, _stub, _executor, _isView) = (client._connection, client._stub, executor, true);
        _models = client._models;
        _planner = new PanelPlanner(new GrpcUnaryTransport(_stub, executor), _models);
        _streams = new GrpcStreamTransport(_stub, executor);
        _sessions = sharesSessions ? client._sessions : new SessionRegistry(_streams, _connection.Calls.Ending);
        Ledger = new GrpcForecastLedger(_connection, executor, this);
    }

    /// <summary>What the server's ledger records, if the server has one (<c>quantra serve --ledger FILE</c>).</summary>
    public IForecastLedger Ledger { get; }

    /// <summary>Returns a view of this client with another timeout.</summary>
    /// <param name="timeout">Positive, at most a day.</param>
    /// <returns>A client on the same channel. It ends with this one and need not be disposed.</returns>
    public QuantraClient WithTimeout(TimeSpan timeout) =>
        new(this, _executor.With(CallTimeout.Validate(timeout)), sharesSessions: true);

    /// <summary>Returns a view of this client that sends one more header.</summary>
    /// <param name="name">Lower case letters, digits, "-", "_" and ".". The server logs x-request-id, for example.</param>
    /// <param name="value">Value of the header.</param>
    /// <returns>A client on the same channel. It ends with this one and need not be disposed.</returns>
    public QuantraClient WithHeader(string name, string value) =>
        new(this, _executor.With(new Metadata.Entry(name, value)), sharesSessions: false);

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictAsync(_connection.Calls, this, request, _planner, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictManyAsync(_connection.Calls, this, requests, _planner, cancellationToken);

    /// <inheritdoc/>
    public IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorStreams.PredictStreamAsync(_streams, _connection.Calls, this, requests, cancellationToken);

    /// <inheritdoc/>
    /// <remarks>All sessions of a client share one call.</remarks>
    public Task<IBarSession> OpenSessionAsync(SessionRequest request, CancellationToken cancellationToken = default) =>
        BarSession.OpenAsync(_streams, _sessions, _connection.Calls, this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainAsync(this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainManyAsync(
            request,
            many => _connection.Calls.RunAsync(this, linkedToken => _planner.ExplainAsync(many, linkedToken), cancellationToken));

    /// <inheritdoc/>
    public IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        GlobalExplanationRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorStreams.ExplainGlobalAsync(
            _connection.Calls,
            this,
            request,
            _planner,
            (message, receive, linkedToken) => _executor.ReadAsync(_stub.ExplainGlobal, message, message.Model, receive, linkedToken),
            cancellationToken);

    /// <inheritdoc/>
    public Task<PathSimulation> SimulatePathsAsync(PathSimulationRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.SimulatePathsAsync(
            _connection.Calls,
            this,
            request,
            (message, receive, linkedToken) => _executor.ReadAsync(_stub.SimulatePaths, message, message.Model, receive, linkedToken),
            cancellationToken);

    /// <inheritdoc/>
    public async Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default)
    {
        var response = await CallAsync(_stub.ListModelsAsync, () => new V1.ListModelsRequest(), "", cancellationToken).ConfigureAwait(false);
        return [.. response.Models.Select(ResponseReader.Model)];
    }

    /// <inheritdoc/>
    public async Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        var response = await CallAsync(
            _stub.GetModelAsync,
            () => new V1.GetModelRequest { Model = model.Text },
            model.Text,
            cancellationToken).ConfigureAwait(false);
        return ResponseReader.Model(response.Model);
    }

    /// <summary>Rejects new calls, waits for running calls up to the grace time, and closes the client's own channel.</summary>
    /// <returns>A task that completes when all calls have ended.</returns>
    public ValueTask DisposeAsync() => _isView ? ValueTask.CompletedTask : _connection.DisposeAsync();

    /// <summary>Runs a call on a pool thread. Disposal waits for it.</summary>
    private Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        Func<TRequest> write,
        string model,
        CancellationToken cancellationToken)
        where TRequest : IMessage =>
        _connection.Calls.RunAsync(this, linkedToken => _executor.CallAsync(method, write(), model, linkedToken), cancellationToken);
}
