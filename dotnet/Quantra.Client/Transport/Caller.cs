using System.Globalization;
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
    /// <param name="token">To send.</param>
    /// <param name="target">The server's address, for messages.</param>
    /// <param name="repeats">Whether a call may be made a second time.</param>
    public Caller(QuantraClientOptions options, CallToken token, string target, bool repeats)
    {
        (_options, _token, _target, _repeats) = (options, token, target, repeats);
        Timeout = options.Timeout;
        Watch = new CallWatch(options.LoggerFactory);
    }

    /// <summary>The turns that its calls take.</summary>
    private CallTurns Turns { get; init; } = new();

    /// <summary>Longest wait for an answer.</summary>
    public TimeSpan Timeout { get; private init; }

    /// <summary>To send with each call.</summary>
    public IReadOnlyList<Metadata.Entry> Headers { get; private init; } = [];

    /// <summary>What may be seen of the calls.</summary>
    public CallWatch Watch { get; private init; }

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
    /// <exception cref="QuantraException">It failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        TRequest request,
        string model,
        CancellationToken cancellationToken)
        where TRequest : IMessage
    {
        var watched = Watch.Begin(request.Descriptor.Name.Replace("Request", "", StringComparison.Ordinal), model);
        try
        {
            CheckSize(request);
            var answer = await AnswerAsync(method, request, cancellationToken).ConfigureAwait(false);
            watched.Succeed();
            return answer;
        }
        catch (RpcException error)
        {
            var failure = Failure(error, cancellationToken);
            watched.Fail((failure as QuantraException)?.Reason ?? QuantraReason.Cancelled);
            throw failure;
        }
        catch (Exception error) when (error is QuantraException or OperationCanceledException)
        {
            watched.Fail((error as QuantraException)?.Reason ?? QuantraReason.Cancelled);
            throw;
        }
    }

    private async Task<TResponse> AnswerAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        TRequest request,
        CancellationToken cancellationToken)
        where TRequest : IMessage
    {
        var options = await OptionsAsync(cancellationToken).ConfigureAwait(false);
        using var turn = await Turns.TakeAsync(request is V1.ExplainRequest, Timeout, cancellationToken).ConfigureAwait(false);
        try
        {
            using var first = method(request, options);
            return await first.ResponseAsync.ConfigureAwait(false);
        }
        catch (RpcException error) when (_repeats && TransportError.IsHiddenLoss(error.Status) && !cancellationToken.IsCancellationRequested)
        {
            // gRPC takes a connection that broke for a bug, and so does not try again.
            using var second = method(request, options);
            return await second.ResponseAsync.ConfigureAwait(false);
        }
    }

    /// <summary>Deadline, headers and cancellation of a call that begins now.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the token cannot be sent.</exception>
    public async ValueTask<CallOptions> OptionsAsync(CancellationToken cancellationToken)
    {
        var deadline = DateTime.UtcNow + Timeout;
        var headers = new Metadata();
        foreach (var header in Headers)
            headers.Add(header);
        await _token.AddToAsync(headers, cancellationToken).ConfigureAwait(false);
        return new CallOptions(headers, deadline, cancellationToken);
    }

    /// <summary>What to throw for a call that failed.</summary>
    /// <param name="error">As gRPC tells it.</param>
    /// <param name="cancellationToken">Of the call: the exception is that of a cancellation if it was cancelled.</param>
    public Exception Failure(RpcException error, CancellationToken cancellationToken) => cancellationToken.IsCancellationRequested
        ? new OperationCanceledException("the call was cancelled", error, cancellationToken)
        : TransportError.Of(error, _target, Timeout).ToException(error);

    /// <summary>Refuses what the server would refuse after it came over the network.</summary>
    /// <exception cref="QuantraException">REQUEST_TOO_LARGE.</exception>
    public void CheckSize(IMessage request)
    {
        var size = request.CalculateSize();
        if (size <= _options.MaxRequestBytes)
            return;
        var (have, most) = (size.ToString(CultureInfo.InvariantCulture), _options.MaxRequestBytes.ToString(CultureInfo.InvariantCulture));
        throw new QuantraError(
            QuantraStatus.ResourceExhausted,
            QuantraReason.RequestTooLarge,
            $"the request has {have} bytes, at most {most}; send fewer symbols, sessions or requests at once",
            new Dictionary<string, string> { ["have"] = have, ["most"] = most }).ToException();
    }
}
