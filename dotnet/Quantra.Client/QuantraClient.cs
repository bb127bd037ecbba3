using System.Collections.Concurrent;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Transport;
using Quantra.Client.Wire;
using Stub = Quantra.V1.PredictionService.PredictionServiceClient;

namespace Quantra.Client;

/// <summary>Calls a Quantra server over gRPC. Keep one client per application: it is safe to share between threads.</summary>
/// <example>
/// <code>
/// await using var client = new QuantraClient(new Uri("http://127.0.0.1:50051"));
/// var bars = BarPanel.ReadCsv("bars.csv").Select("AAPL");
/// Console.WriteLine(await client.PredictAsync(new PredictionRequest("stock", bars)));
/// </code>
/// </example>
public sealed class QuantraClient : IStockPredictor
{
    private const string Service = "quantra.v1.PredictionService";

    private readonly Connection _connection;
    private readonly Stub _stub;
    private readonly Caller _caller;
    private readonly ConcurrentDictionary<string, ServedModel> _models;
    private readonly Planning _planning;
    private readonly GrpcStreams _streams;
    private readonly SessionStreams _sessions;
    private readonly bool _isView;

    /// <summary>Opens a channel of its own; nothing is sent before the first call.</summary>
    /// <param name="address">Such as http://127.0.0.1:50051, https://example.org:50051 or unix:/run/quantra/server.sock.</param>
    /// <exception cref="ArgumentException">The address begins with neither http:// nor https:// nor unix:.</exception>
    public QuantraClient(Uri address)
        : this(address, new QuantraClientOptions())
    {
    }

    /// <summary>Opens a channel of its own; nothing is sent before the first call.</summary>
    /// <param name="address">Such as http://127.0.0.1:50051, https://example.org:50051 or unix:/run/quantra/server.sock.</param>
    /// <param name="options">Timeout, limits, retries and credentials.</param>
    /// <exception cref="ArgumentException">
    /// The address begins with neither http:// nor https:// nor unix:; the authorities' file holds no certificate.
    /// </exception>
    /// <exception cref="IOException">The authorities' file cannot be read.</exception>
    public QuantraClient(Uri address, QuantraClientOptions options)
        : this(Connection.To(address, options, Service, repeats: true))
    {
    }

    /// <summary>Uses a channel that stays the caller's, with its credentials and retries: disposing this client leaves it open.</summary>
    /// <param name="channel">An open channel.</param>
    /// <param name="options">Timeout and limits; those of channels that a client opens itself have no effect.</param>
    public QuantraClient(GrpcChannel channel, QuantraClientOptions options)
        : this(Connection.Over(channel, options, Service))
    {
    }

    /// <summary>Calls through an invoker, for example one with interceptors, or a fake in a test.</summary>
    /// <param name="invoker">Makes the calls.</param>
    /// <param name="options">Timeout and limits; those of channels that a client opens itself have no effect.</param>
    public QuantraClient(CallInvoker invoker, QuantraClientOptions options)
        : this(Connection.Over(invoker, options, Service))
    {
    }

    private QuantraClient(Connection connection)
    {
        (_connection, _caller, _stub) = (connection, connection.Caller, new Stub(connection.Invoker));
        _models = new();
        _planning = new Planning(new GrpcModelDoor(_stub, _caller), _models);
        _streams = new GrpcStreams(_stub, _caller);
        _sessions = new SessionStreams(_streams, connection.Calls.Ending);
    }

    private QuantraClient(QuantraClient client, Caller caller, bool sharesSessions)
    {
        (_connection, _stub, _caller, _isView) = (client._connection, client._stub, caller, true);
        _models = client._models;
        _planning = new Planning(new GrpcModelDoor(_stub, caller), _models);
        _streams = new GrpcStreams(_stub, caller);
        _sessions = sharesSessions ? client._sessions : new SessionStreams(_streams, _connection.Calls.Ending);
    }

    /// <summary>This client with another timeout, for some of the calls.</summary>
    /// <param name="timeout">Positive, at most a day.</param>
    /// <returns>A client on the same channel. It ends with this one; it need not be disposed.</returns>
    public QuantraClient WithTimeout(TimeSpan timeout) =>
        new(this, _caller.With(CallTimeout.Checked(timeout)), sharesSessions: true);

    /// <summary>This client with one more header, for some of the calls.</summary>
    /// <param name="name">Lower case letters, digits, "-", "_" and "."; such as x-request-id, which the server writes into its log.</param>
    /// <param name="value">To send.</param>
    /// <returns>A client on the same channel. It ends with this one; it need not be disposed.</returns>
    public QuantraClient WithHeader(string name, string value) =>
        new(this, _caller.With(new Metadata.Entry(name, value)), sharesSessions: false);

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictAsync(_connection.Calls, this, request, _planning, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictManyAsync(_connection.Calls, this, requests, _planning, cancellationToken);

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
            many => _connection.Calls.RunAsync(this, either => _planning.ExplainAsync(many, either), cancellationToken));

    /// <inheritdoc/>
    public IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        GlobalExplanationRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorStreams.ExplainGlobalAsync(
            _connection.Calls,
            this,
            request,
            _planning,
            (message, tell, either) => _caller.ReadAsync(_stub.ExplainGlobal, message, message.Model, tell, either),
            cancellationToken);

    /// <inheritdoc/>
    public async Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default)
    {
        var answer = await CallAsync(_stub.ListModelsAsync, () => new V1.ListModelsRequest(), "", cancellationToken).ConfigureAwait(false);
        return [.. answer.Models.Select(ResponseReader.Model)];
    }

    /// <inheritdoc/>
    public async Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        var answer = await CallAsync(
            _stub.GetModelAsync,
            () => new V1.GetModelRequest { Model = model.Text },
            model.Text,
            cancellationToken).ConfigureAwait(false);
        return ResponseReader.Model(answer.Model);
    }

    /// <summary>Takes no more calls, waits for those under way as long as the grace time, and closes the channel that this client opened.</summary>
    /// <returns>A task that completes when no call is under way any more.</returns>
    public ValueTask DisposeAsync() => _isView ? ValueTask.CompletedTask : _connection.DisposeAsync();

    /// <summary>Makes a call that the end of this client waits for, none of it on the caller's thread.</summary>
    private Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        Func<TRequest> write,
        string model,
        CancellationToken cancellationToken)
        where TRequest : IMessage =>
        _connection.Calls.RunAsync(this, either => _caller.CallAsync(method, write(), model, either), cancellationToken);
}
