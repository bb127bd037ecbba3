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
    private readonly Stub _stub;
    private readonly QuantraClientOptions _options;
    private readonly string _target;
    private readonly GrpcChannel? _ownChannel;
    private bool _disposed;

    /// <summary>Opens a channel of its own; nothing is sent before the first call.</summary>
    /// <param name="address">For example http://127.0.0.1:50051.</param>
    /// <exception cref="ArgumentException">The address begins with neither http:// nor https://.</exception>
    public QuantraClient(Uri address)
        : this(address, new QuantraClientOptions())
    {
    }

    /// <summary>Opens a channel of its own; nothing is sent before the first call.</summary>
    /// <param name="address">For example http://127.0.0.1:50051.</param>
    /// <param name="options">Timeout and limits.</param>
    /// <exception cref="ArgumentException">The address begins with neither http:// nor https://.</exception>
    public QuantraClient(Uri address, QuantraClientOptions options)
    {
        ArgumentNullException.ThrowIfNull(address);
        ArgumentNullException.ThrowIfNull(options);
        CheckScheme(address);
        _ownChannel = OpenChannel(address, options);
        _stub = new Stub(_ownChannel);
        _target = address.Authority;
        _options = options;
    }

    /// <summary>Uses a channel that stays the caller's: disposing this client leaves it open.</summary>
    /// <param name="channel">An open channel.</param>
    /// <param name="options">Timeout and limits.</param>
    public QuantraClient(GrpcChannel channel, QuantraClientOptions options)
    {
        ArgumentNullException.ThrowIfNull(channel);
        ArgumentNullException.ThrowIfNull(options);
        _stub = new Stub(channel);
        _target = channel.Target;
        _options = options;
    }

    /// <summary>Calls through an invoker, for example one with interceptors, or a fake in a test.</summary>
    /// <param name="invoker">Makes the calls.</param>
    /// <param name="options">Timeout and limits.</param>
    public QuantraClient(CallInvoker invoker, QuantraClientOptions options)
    {
        ArgumentNullException.ThrowIfNull(invoker);
        ArgumentNullException.ThrowIfNull(options);
        _stub = new Stub(invoker);
        _target = "the server";
        _options = options;
    }

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictAsync(this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictManyAsync(requests, async (model, same) =>
        {
            var answer = await CallAsync(_stub.PredictAsync, RequestWriter.Predict(model, same), cancellationToken)
                .ConfigureAwait(false);
            return [.. answer.Results.Select(ResponseReader.Result)];
        });

    /// <inheritdoc/>
    public Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainAsync(this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainManyAsync(request, async many =>
        {
            var answer = await CallAsync(_stub.ExplainAsync, RequestWriter.Explain(many), cancellationToken)
                .ConfigureAwait(false);
            return [.. answer.Attributions.Select(ResponseReader.Attribution)];
        });

    /// <inheritdoc/>
    public async Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default)
    {
        var answer = await CallAsync(_stub.ListModelsAsync, new V1.ListModelsRequest(), cancellationToken)
            .ConfigureAwait(false);
        return [.. answer.Models.Select(ResponseReader.Model)];
    }

    /// <inheritdoc/>
    public async Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        var answer = await CallAsync(_stub.GetModelAsync, new V1.GetModelRequest { Model = model.Text }, cancellationToken)
            .ConfigureAwait(false);
        return ResponseReader.Model(answer.Model);
    }

    /// <summary>Closes the channel if this client opened it.</summary>
    /// <returns>A completed task.</returns>
    public ValueTask DisposeAsync()
    {
        _disposed = true;
        _ownChannel?.Dispose();
        return ValueTask.CompletedTask;
    }

    /// <summary>Refuses what .NET takes for an address and no call could use: in localhost:50051, localhost is the scheme.</summary>
    private static void CheckScheme(Uri address)
    {
        if (address.IsAbsoluteUri && address.Scheme is ("http" or "https"))
            return;
        var (given, rest) = (address.OriginalString, address.OriginalString.Split("://")[^1]);
        throw new ArgumentException(
            $"'{given}' begins with neither http:// nor https://; write http://{rest}, or https://{rest} if the server has TLS",
            nameof(address));
    }

    private static GrpcChannel OpenChannel(Uri address, QuantraClientOptions options) =>
        GrpcChannel.ForAddress(address, new GrpcChannelOptions
        {
            HttpHandler = new SocketsHttpHandler
            {
                UseProxy = !address.IsLoopback,
                EnableMultipleHttp2Connections = true,
                ConnectTimeout = options.ConnectTimeout,
                KeepAlivePingDelay = options.PingInterval,
                KeepAlivePingTimeout = options.PingTimeout,
            },
            DisposeHttpClient = true,
            MaxReceiveMessageSize = options.MaxMessageBytes,
        });

    /// <summary>Sets the deadline of a call, and turns a failed one into an exception.</summary>
    private async Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        TRequest request,
        CancellationToken cancellationToken)
    {
        ObjectDisposedException.ThrowIf(_disposed, this);
        var deadline = DateTime.UtcNow + _options.Timeout;
        try
        {
            using var call = method(request, new CallOptions(null, deadline, cancellationToken));
            return await call.ResponseAsync.ConfigureAwait(false);
        }
        catch (RpcException error) when (cancellationToken.IsCancellationRequested)
        {
            throw new OperationCanceledException("the call was cancelled", error, cancellationToken);
        }
        catch (RpcException error)
        {
            throw TransportError.Of(error, _target, _options.Timeout).ToException(error);
        }
    }
}
