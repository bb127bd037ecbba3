using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using System.Threading.Channels;

namespace Quantra.Client.Wire;

/// <summary>The call that all sessions share. Sends requests in order and matches responses to them by id. Thread-safe.</summary>
internal sealed class SessionCall
{
    private readonly object _gate = new();
    private readonly Channel<V1.PredictStreamRequest> _outbox = Channel.CreateUnbounded<V1.PredictStreamRequest>();
    private readonly Dictionary<string, TaskCompletionSource<V1.PredictStreamResponse>> _waiting = [];
    private int _count;
    private Exception? _failure;

    private SessionCall()
    {
    }

    /// <summary>Whether the call has ended, and its sessions with it.</summary>
    public bool HasEnded
    {
        get
        {
            lock (_gate)
                return _failure is not null;
        }
    }

    /// <summary>Number of sessions on this call. Guarded by the registry's lock.</summary>
    public int Sessions { get; set; }

    /// <summary>Starts the call; the token ends it.</summary>
    public static SessionCall Start(IStreamTransport transport, CancellationToken ending)
    {
        var call = new SessionCall();
        using (ExecutionContext.SuppressFlow()) // the call outlives the request that starts it
            _ = Task.Run(() => call.RunAsync(transport, ending), CancellationToken.None);
        return call;
    }

    /// <summary>Assigns an id to a request and sends it.</summary>
    /// <returns>The response. Faults when the call fails or has ended.</returns>
    public Task<V1.PredictStreamResponse> SendAsync(V1.PredictStreamRequest request)
    {
        var completion = new TaskCompletionSource<V1.PredictStreamResponse>(TaskCreationOptions.RunContinuationsAsynchronously);
        lock (_gate)
        {
            if (_failure is not null)
                return Task.FromException<V1.PredictStreamResponse>(Copy(_failure));
            Enqueue(request);
            _waiting.Add(request.RequestId, completion);
        }

        return completion.Task;
    }

    /// <summary>Sends a request without waiting for its response.</summary>
    public void Post(V1.PredictStreamRequest request)
    {
        lock (_gate)
            Enqueue(request);
    }

    /// <summary>Discards the response to a request that nothing waits for any more.</summary>
    public void Forget(V1.PredictStreamRequest request)
    {
        lock (_gate)
            _waiting.Remove(request.RequestId);
    }

    /// <summary>Ends the stream of requests.</summary>
    public void Complete() => _outbox.Writer.TryComplete();

    private void Enqueue(V1.PredictStreamRequest request)
    {
        request.RequestId = (++_count).ToString(CultureInfo.InvariantCulture);
        _outbox.Writer.TryWrite(request);
    }

    [SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to the waiting requests")]
    private async Task RunAsync(IStreamTransport transport, CancellationToken ending)
    {
        try
        {
            using var stop = CancellationTokenSource.CreateLinkedTokenSource(ending);
            var call = await transport.OpenAsync(stop.Token).ConfigureAwait(false);
            await using var closing = call.ConfigureAwait(false);
            await TaskGroup.WhenAllAsync(stop, SendAsync(call, stop.Token), ReceiveAsync(call)).ConfigureAwait(false);
            const string Message = "ended the session stream; the next push reopens the session";
            End(new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, $"{transport.Settings.Target} {Message}").ToException());
        }
        catch (Exception failure)
        {
            End(failure);
        }
    }

    private async Task SendAsync(IDuplexCall call, CancellationToken cancellationToken)
    {
        await foreach (var request in _outbox.Reader.ReadAllAsync(cancellationToken).ConfigureAwait(false))
        {
            if (!await call.SendAsync(request).ConfigureAwait(false))
                return;
        }

        await call.CompleteAsync().ConfigureAwait(false);
    }

    private async Task ReceiveAsync(IDuplexCall call)
    {
        while (await call.ReadAsync().ConfigureAwait(false) is { } response)
            Receive(response);
        Complete(); // the server ended the call: stop sending
    }

    private void Receive(V1.PredictStreamResponse response)
    {
        TaskCompletionSource<V1.PredictStreamResponse>? completion;
        lock (_gate)
            _waiting.Remove(response.RequestId, out completion);
        completion?.TrySetResult(response);
    }

    private void End(Exception failure)
    {
        TaskCompletionSource<V1.PredictStreamResponse>[] waiting;
        lock (_gate)
        {
            _failure = failure;
            waiting = [.. _waiting.Values];
            _waiting.Clear();
        }

        Complete();
        foreach (var completion in waiting)
            completion.TrySetException(Copy(failure));
    }

    /// <summary>Creates a separate exception for each request that waits.</summary>
    private static Exception Copy(Exception failure) =>
        failure is QuantraException quantra ? quantra.Error.ToException(quantra.InnerException) : failure;
}
