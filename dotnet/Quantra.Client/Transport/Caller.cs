using Google.Protobuf;
using Grpc.Core;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>Makes calls: their deadline, headers and size, and what becomes of a failed one.</summary>
internal sealed class Caller
{
    private readonly QuantraClientOptions _options;
    private readonly CallToken _token;
    private readonly string _target;
    private readonly bool _repeats;

    /// <param name="options">Of the client.</param>
    /// <param name="service">Whose calls they are.</param>
    /// <param name="token">To send.</param>
    /// <param name="target">The server's address, for messages.</param>
    /// <param name="repeats">Whether a call may be made a second time.</param>
    public Caller(QuantraClientOptions options, string service, CallToken token, string target, bool repeats)
        : this(options, token, target, repeats)
    {
        Timeout = options.Timeout;
        Watch = new CallWatch(options.LoggerFactory, service);
    }

    private Caller(QuantraClientOptions options, CallToken token, string target, bool repeats) =>
        (_options, _token, _target, _repeats) = (options, token, target, repeats);

    /// <summary>The turns that its calls take.</summary>
    private CallTurns Turns { get; init; } = new();

    /// <summary>Longest wait for an answer.</summary>
    public TimeSpan Timeout { get; private init; }

    /// <summary>To send with each call.</summary>
    public IReadOnlyList<Metadata.Entry> Headers { get; private init; } = [];

    /// <summary>What may be seen of the calls.</summary>
    public CallWatch Watch { get; private init; } = null!;

    /// <summary>Timeouts and bounds, which calls share with streams and sessions.</summary>
    public CallSettings Settings => new()
    {
        Target = _target,
        Timeout = Timeout,
        MaxInFlight = _options.MaxInFlight,
        MaxAttempts = _repeats ? _options.MaxAttempts : 1,
        MaxRequestBytes = _options.MaxRequestBytes,
    };

    /// <summary>The same with another timeout.</summary>
    public Caller With(TimeSpan timeout) =>
        new(_options, _token, _target, _repeats) { Timeout = timeout, Headers = Headers, Watch = Watch, Turns = Turns };

    /// <summary>The same with one more header.</summary>
    public Caller With(Metadata.Entry header) =>
        new(_options, _token, _target, _repeats) { Timeout = Timeout, Headers = [.. Headers, header], Watch = Watch, Turns = Turns };

    /// <summary>Calls, and waits for the answer.</summary>
    /// <param name="method">Of the stub.</param>
    /// <param name="request">To send.</param>
    /// <param name="model">That is asked; "" = none in particular.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <param name="deadline">That it shares with others; null = one of its own, from now on.</param>
    /// <exception cref="QuantraException">It failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        TRequest request,
        string model,
        CancellationToken cancellationToken,
        Deadline? deadline = null)
        where TRequest : IMessage => WatchAsync(
            request,
            model,
            async options =>
            {
                using var call = method(request, options);
                return await call.ResponseAsync.ConfigureAwait(false);
            },
            static () => true,
            deadline,
            cancellationToken);

    /// <summary>Calls, and hands over each message of the answer as it comes; after the first one it is not tried again.</summary>
    /// <param name="method">Of the stub.</param>
    /// <param name="request">To send.</param>
    /// <param name="model">That is asked.</param>
    /// <param name="tell">Takes each message.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <exception cref="QuantraException">It failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public Task ReadAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncServerStreamingCall<TResponse>> method,
        TRequest request,
        string model,
        Action<TResponse> tell,
        CancellationToken cancellationToken)
        where TRequest : IMessage
    {
        var hasTold = false;
        return WatchAsync(
            request,
            model,
            async options =>
            {
                using var call = method(request, options);
                while (await call.ResponseStream.MoveNext(CancellationToken.None).ConfigureAwait(false))
                {
                    hasTold = true;
                    tell(call.ResponseStream.Current);
                }

                return true;
            },
            () => !hasTold,
            null,
            cancellationToken);
    }

    private Task<T> WatchAsync<T>(
        IMessage request,
        string model,
        Func<CallOptions, Task<T>> call,
        Func<bool> mayRepeat,
        Deadline? shared,
        CancellationToken cancellationToken)
    {
        var method = request.Descriptor.Name.Replace("Request", "", StringComparison.Ordinal);
        var watched = Watch.Begin(method, model);
        return watched.WatchAsync(async () =>
        {
            RequestSize.Check(request, _options.MaxRequestBytes);
            var deadline = shared ?? Deadline.After(Timeout);
            if (deadline.IsOver)
                throw Settings.TooLate().ToException();
            var options = await OptionsAsync(deadline, cancellationToken).ConfigureAwait(false);
            using var turn = await TurnOfAsync(request, deadline, cancellationToken).ConfigureAwait(false);
            for (var attempt = 1; ; attempt++)
            {
                try
                {
                    return await call(options).ConfigureAwait(false);
                }
                catch (RpcException error) when (!cancellationToken.IsCancellationRequested && mayRepeat()
                    && Settings.PauseAfter(attempt, ErrorOf(error), deadline) is { } pause)
                {
                    await Task.Delay(pause, cancellationToken).ConfigureAwait(false);
                    watched.TryAgain();
                }
                catch (RpcException error)
                {
                    throw Failure(error, cancellationToken);
                }
            }
        });
    }

    /// <summary>The turn of a call; a global explanation takes none, as others would wait for it for minutes.</summary>
    private ValueTask<CallTurns.Turn> TurnOfAsync(IMessage request, Deadline deadline, CancellationToken cancellationToken) =>
        request is V1.ExplainGlobalRequest
            ? default
            : Turns.TakeAsync(request is V1.ExplainRequest, Timeout, deadline.Left, cancellationToken);

    /// <summary>Deadline, headers and cancellation of a call that begins now.</summary>
    /// <param name="deadline">Of the call; null = it goes on as long as it likes.</param>
    /// <param name="cancellationToken">Of the call.</param>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the token cannot be sent.</exception>
    public async ValueTask<CallOptions> OptionsAsync(Deadline? deadline, CancellationToken cancellationToken)
    {
        var headers = new Metadata();
        foreach (var header in Headers)
            headers.Add(header);
        await _token.AddToAsync(headers, cancellationToken).ConfigureAwait(false);
        return new CallOptions(headers, deadline?.AtUtc, cancellationToken);
    }

    /// <summary>What to throw for a call that failed.</summary>
    /// <param name="error">As gRPC tells it.</param>
    /// <param name="cancellationToken">Of the call: the exception is that of a cancellation if it was cancelled.</param>
    public Exception Failure(RpcException error, CancellationToken cancellationToken) => cancellationToken.IsCancellationRequested
        ? new OperationCanceledException("the call was cancelled", error, cancellationToken)
        : ErrorOf(error).ToException(error);

    private QuantraError ErrorOf(RpcException error) => TransportError.Of(error, _target, Timeout);
}
