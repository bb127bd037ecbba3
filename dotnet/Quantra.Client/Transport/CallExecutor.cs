using Google.Protobuf;
using Grpc.Core;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>Makes gRPC calls: sets deadline, headers and size limit, and retries failed calls.</summary>
internal sealed record CallExecutor
{
    private readonly QuantraClientOptions _options;
    private readonly BearerToken _token;
    private readonly string _target;
    private readonly bool _repeats;

    /// <param name="options">Options of the client.</param>
    /// <param name="service">Name of the gRPC service.</param>
    /// <param name="token">Adds the token to each call.</param>
    /// <param name="target">Address of the server, for messages.</param>
    /// <param name="repeats">Whether failed calls may be repeated.</param>
    public CallExecutor(QuantraClientOptions options, string service, BearerToken token, string target, bool repeats)
    {
        (_options, _token, _target, _repeats) = (options, token, target, repeats);
        Timeout = options.Timeout;
        Telemetry = new ClientTelemetry(options.LoggerFactory, service);
    }

    public TimeSpan Timeout { get; private init; }

    public IReadOnlyList<Metadata.Entry> Headers { get; private init; } = [];

    public ClientTelemetry Telemetry { get; private init; }

    /// <summary>Shared by all copies.</summary>
    private CallLimiter Limiter { get; } = new();

    public CallSettings Settings => new()
    {
        Target = _target,
        Timeout = Timeout,
        MaxInFlight = _options.MaxInFlight,
        MaxAttempts = _repeats ? _options.MaxAttempts : 1,
        MaxRequestBytes = _options.MaxRequestBytes,
    };

    /// <summary>Returns a copy with another timeout.</summary>
    public CallExecutor With(TimeSpan timeout) => this with { Timeout = timeout };

    /// <summary>Returns a copy with one more header.</summary>
    public CallExecutor With(Metadata.Entry header) => this with { Headers = [.. Headers, header] };

    /// <summary>Returns a copy for another service of the same server.</summary>
    public CallExecutor With(string service) => this with { Telemetry = new(_options.LoggerFactory, service) };

    /// <summary>Makes a unary call.</summary>
    /// <param name="method">Method of the stub.</param>
    /// <param name="request">The request.</param>
    /// <param name="model">Model of the request, for telemetry; "" = none.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <param name="deadline">Deadline shared with other calls; null = a new one.</param>
    /// <exception cref="QuantraException">The call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        TRequest request,
        string model,
        CancellationToken cancellationToken,
        Deadline? deadline = null)
        where TRequest : IMessage => TrackAsync(
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

    /// <summary>Makes a server streaming call. It is not repeated after the first message.</summary>
    /// <param name="method">Method of the stub.</param>
    /// <param name="request">The request.</param>
    /// <param name="model">Model of the request, for telemetry.</param>
    /// <param name="receive">Receives each message.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <exception cref="QuantraException">The call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public Task ReadAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncServerStreamingCall<TResponse>> method,
        TRequest request,
        string model,
        Action<TResponse> receive,
        CancellationToken cancellationToken)
        where TRequest : IMessage
    {
        var hasReceived = false;
        return TrackAsync(
            request,
            model,
            async options =>
            {
                using var call = method(request, options);
                while (await call.ResponseStream.MoveNext(CancellationToken.None).ConfigureAwait(false))
                {
                    hasReceived = true;
                    receive(call.ResponseStream.Current);
                }

                return true;
            },
            () => !hasReceived,
            null,
            cancellationToken);
    }

    /// <summary>Makes an endless server streaming call. If it ends, another call continues, unless the server stays unavailable for the timeout.</summary>
    /// <param name="method">Method of the stub.</param>
    /// <param name="write">Writes the request of each call, which continues after the last received message.</param>
    /// <param name="model">Model of the request, for telemetry; "" = none.</param>
    /// <param name="receive">Receives each message.</param>
    /// <param name="cancellationToken">Ends the call.</param>
    /// <exception cref="QuantraException">The call failed, and a retry would not help or did not.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public Task WatchAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncServerStreamingCall<TResponse>> method,
        Func<TRequest> write,
        string model,
        Action<TResponse> receive,
        CancellationToken cancellationToken)
        where TRequest : IMessage
    {
        var telemetry = Telemetry.Begin(GetMethodName(write()), model);
        return telemetry.TrackAsync<bool>(async () =>
        {
            var (attempts, unavailable) = (0, Deadline.After(Timeout));
            while (true)
            {
                var (hasReceived, lasting) = (false, Deadline.After(Timeout));
                try
                {
                    using var call = method(write(), await CreateOptionsAsync(null, cancellationToken).ConfigureAwait(false));
                    while (await call.ResponseStream.MoveNext(CancellationToken.None).ConfigureAwait(false))
                    {
                        hasReceived = true;
                        receive(call.ResponseStream.Current);
                    }

                    throw new RpcException(new Status(StatusCode.Unavailable, "the server ended the call"));
                }
                catch (RpcException error) when (!cancellationToken.IsCancellationRequested && _options.MaxAttempts > 1)
                {
                    if (hasReceived || lasting.HasPassed)
                        (attempts, unavailable) = (0, Deadline.After(Timeout)); // the server was available meanwhile
                    var failure = ToError(error);
                    var delay = Backoff.After(++attempts, failure);
                    if (!failure.IsTransient || delay >= unavailable.Remaining)
                        throw failure.ToException(error);
                    await Task.Delay(delay, cancellationToken).ConfigureAwait(false);
                    telemetry.Retry();
                }
                catch (RpcException error)
                {
                    throw Failure(error, cancellationToken);
                }
            }
        });
    }

    private static string GetMethodName(IMessage request) => request.Descriptor.Name.Replace("Request", "", StringComparison.Ordinal);

    private Task<T> TrackAsync<T>(
        IMessage request,
        string model,
        Func<CallOptions, Task<T>> call,
        Func<bool> canRepeat,
        Deadline? shared,
        CancellationToken cancellationToken)
    {
        var telemetry = Telemetry.Begin(GetMethodName(request), model);
        return telemetry.TrackAsync(async () =>
        {
            RequestSize.Check(request, _options.MaxRequestBytes);
            var deadline = shared ?? Deadline.After(Timeout);
            if (deadline.HasPassed)
                throw Settings.CreateDeadlineError().ToException();
            var options = await CreateOptionsAsync(deadline, cancellationToken).ConfigureAwait(false);
            using var slot = await AcquireSlotAsync(request, deadline, cancellationToken).ConfigureAwait(false);
            for (var attempt = 1; ; attempt++)
            {
                try
                {
                    return await call(options).ConfigureAwait(false);
                }
                catch (RpcException error) when (!cancellationToken.IsCancellationRequested && canRepeat()
                    && Settings.RetryDelay(attempt, ToError(error), deadline) is { } delay)
                {
                    await Task.Delay(delay, cancellationToken).ConfigureAwait(false);
                    telemetry.Retry();
                }
                catch (RpcException error)
                {
                    throw Failure(error, cancellationToken);
                }
            }
        });
    }

    /// <summary>Acquires a slot. A global explanation takes none, because it would keep the slot for minutes.</summary>
    private ValueTask<CallLimiter.Slot> AcquireSlotAsync(IMessage request, Deadline deadline, CancellationToken cancellationToken) =>
        request is V1.ExplainGlobalRequest
            ? default
            : Limiter.AcquireAsync(request is V1.ExplainRequest or V1.SimulatePathsRequest, Timeout, deadline.Remaining, cancellationToken);

    /// <summary>Creates the options of a call that starts now; without a deadline, the call is unlimited.</summary>
    /// <exception cref="QuantraException">
    /// CONFIGURATION_INVALID: the token cannot be sent. DEADLINE_EXCEEDED: it did not come in time.
    /// </exception>
    public async ValueTask<CallOptions> CreateOptionsAsync(Deadline? deadline, CancellationToken cancellationToken)
    {
        var headers = new Metadata();
        foreach (var header in Headers)
            headers.Add(header);
        var adding = _token.AddToAsync(headers, cancellationToken).AsTask();
        try
        {
            await adding.WaitAsync(deadline?.Remaining ?? Timeout, cancellationToken).ConfigureAwait(false);
        }
        catch (TimeoutException) when (!adding.IsCompleted)
        {
            throw Settings.CreateDeadlineError().ToException();
        }

        return new CallOptions(headers, deadline?.AtUtc, cancellationToken);
    }

    /// <summary>Returns the exception for a failed call: a cancellation if the token was cancelled.</summary>
    public Exception Failure(RpcException error, CancellationToken cancellationToken) => cancellationToken.IsCancellationRequested
        ? new OperationCanceledException("the call was cancelled", error, cancellationToken)
        : ToError(error).ToException(error);

    private QuantraError ToError(RpcException error) => TransportError.Of(error, _target, Timeout);
}
