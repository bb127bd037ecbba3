using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using Quantra.Client.Wire;
using Stub = Quantra.V1.LedgerService.LedgerServiceClient;

namespace Quantra.Client.Transport;

/// <summary>Reads a server's ledger over gRPC.</summary>
/// <param name="connection">Connection of the client.</param>
/// <param name="executor">Executor of the client, with its timeout and headers.</param>
/// <param name="owner">The client, named in the ObjectDisposedException.</param>
internal sealed class GrpcForecastLedger(ClientConnection connection, CallExecutor executor, object owner) : IForecastLedger
{
    private readonly Stub _stub = new(connection.Invoker);
    private readonly CallExecutor _executor = executor.With("quantra.v1.LedgerService");

    /// <inheritdoc/>
    public async Task<IReadOnlyList<RecordedForecast>> GetForecastsAsync(
        string forecastId,
        string? symbol = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(forecastId);
        var request = new V1.GetForecastRequest { ForecastId = forecastId, Symbol = symbol ?? "" };
        var response = await CallAsync(_stub.GetForecastAsync, request, "", cancellationToken).ConfigureAwait(false);
        return [.. response.Forecasts.Select(LedgerReader.Forecast)];
    }

    /// <inheritdoc/>
    public IAsyncEnumerable<RecordedForecast> ListForecastsAsync(ForecastQuery query, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(query);
        var request = Request(query);
        return AsyncProducer.EnumerateAsync<RecordedForecast>(
            (forecasts, stoppedToken) => RunAsync(
                linkedToken => _executor.ReadAsync(
                    _stub.ListForecasts,
                    request,
                    request.Model,
                    part =>
                    {
                        foreach (var forecast in part.Forecasts)
                            forecasts.TryWrite(LedgerReader.Forecast(forecast));
                    },
                    linkedToken),
                stoppedToken),
            cancellationToken);
    }

    /// <inheritdoc/>
    public async Task<LedgerHealth> GetHealthAsync(ModelReference? model = null, CancellationToken cancellationToken = default)
    {
        var request = new V1.GetHealthRequest { Model = model?.Text ?? "" };
        return LedgerReader.Health(await CallAsync(_stub.GetHealthAsync, request, request.Model, cancellationToken).ConfigureAwait(false));
    }

    /// <inheritdoc/>
    public IAsyncEnumerable<LedgerEvent> WatchEventsAsync(
        ModelReference? model = null,
        long after = 0,
        CancellationToken cancellationToken = default)
    {
        ArgumentOutOfRangeException.ThrowIfNegative(after);
        return AsyncProducer.EnumerateAsync<LedgerEvent>(
            (events, stoppedToken) => RunAsync(linkedToken => WatchAsync(model?.Text ?? "", after, events, linkedToken), stoppedToken),
            cancellationToken);
    }

    private static V1.ListForecastsRequest Request(ForecastQuery query) => new()
    {
        Model = query.Model?.Text ?? "",
        Symbol = query.Symbol ?? "",
        FirstSession = SessionNumber.OfOrZero(query.First),
        LastSession = SessionNumber.OfOrZero(query.Last),
        Roles = { query.Roles.Select(Role) },
        Newest = query.Newest ?? 0,
    };

    private static V1.ForecastRole Role(ForecastRole role) => role switch
    {
        ForecastRole.Champion => V1.ForecastRole.Champion,
        ForecastRole.Challenger => V1.ForecastRole.Challenger,
        ForecastRole.Baseline => V1.ForecastRole.Baseline,
        ForecastRole.Client => V1.ForecastRole.Client,
        _ => throw new ArgumentException($"forecasts in the role {role} cannot be listed; choose Champion, Challenger, Baseline or Client", nameof(role)),
    };

    /// <summary>Writes events until the token is cancelled or the client is disposed.</summary>
    private async Task WatchAsync(string model, long after, ChannelWriter<LedgerEvent> events, CancellationToken cancellationToken)
    {
        using var ending = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, connection.Calls.Closing);
        try
        {
            await _executor.WatchAsync(
                _stub.WatchEvents,
                () => new V1.WatchEventsRequest { Model = model, After = after },
                model,
                message =>
                {
                    var read = LedgerReader.Event(message, after);
                    after = read.Number;
                    events.TryWrite(read);
                },
                ending.Token).ConfigureAwait(false);
        }
        catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            // the client was disposed
        }
    }

    private Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        TRequest request,
        string model,
        CancellationToken cancellationToken)
        where TRequest : IMessage =>
        connection.Calls.RunAsync(owner, linkedToken => _executor.CallAsync(method, request, model, linkedToken), cancellationToken);

    private Task<bool> RunAsync(Func<CancellationToken, Task> call, CancellationToken cancellationToken) => connection.Calls.RunAsync(
        owner,
        async linkedToken =>
        {
            await call(linkedToken).ConfigureAwait(false);
            return true;
        },
        cancellationToken);
}
