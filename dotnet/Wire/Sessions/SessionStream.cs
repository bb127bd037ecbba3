using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using System.Threading.Channels;

namespace Quantra.Client.Wire;

/// <summary>The call that sessions share: requests go out in the order in which they come, each answer finds who asked. Thread-safe.</summary>
internal sealed class SessionStream
{
    private readonly object _gate = new();
    private readonly Channel<V1.PredictStreamRequest> _outbox = Channel.CreateUnbounded<V1.PredictStreamRequest>();
    private readonly Dictionary<string, TaskCompletionSource<V1.PredictStreamResponse>> _waiting = [];
    private int _count;
    private Exception? _end;

    private SessionStream()
    {
    }

    /// <summary>Whether it has ended, with its sessions.</summary>
    public bool IsOver
    {
        get
        {
            lock (_gate)
                return _end is not null;
        }
    }

    /// <summary>How many sessions there are on it; for who opens and closes them, one at a time.</summary>
    public int Sessions { get; set; }

    /// <summary>Begins one.</summary>
    /// <param name="door">The way to the predictor.</param>
    /// <param name="ending">Ends it, at any time.</param>
    public static SessionStream Begin(IStreamDoor door, CancellationToken ending)
    {
        var stream = new SessionStream();
        using (ExecutionContext.SuppressFlow()) // it outlives whoever asks first
            _ = Task.Run(() => stream.RunAsync(door, ending), CancellationToken.None);
        return stream;
    }

    /// <summary>Sends a request, which gets its id.</summary>
    /// <returns>Its response. Fails with what the stream ends with, before it, or has ended with.</returns>
    public Task<V1.PredictStreamResponse> AskAsync(V1.PredictStreamRequest request)
    {
        var answer = new TaskCompletionSource<V1.PredictStreamResponse>(TaskCreationOptions.RunContinuationsAsynchronously);
        lock (_gate)
        {
            if (_end is not null)
                return Task.FromException<V1.PredictStreamResponse>(Again(_end));
            Post(request);
            _waiting.Add(request.RequestId, answer);
        }

        return answer.Task;
    }

    /// <summary>Sends a request to whose response nobody listens.</summary>
    public void Tell(V1.PredictStreamRequest request)
    {
        lock (_gate)
            Post(request);
    }

    /// <summary>Nobody waits for the response to a request any more.</summary>
    public void Forget(V1.PredictStreamRequest request)
    {
        lock (_gate)
            _waiting.Remove(request.RequestId);
    }

    /// <summary>No request follows.</summary>
    public void End() => _outbox.Writer.TryComplete();

    private void Post(V1.PredictStreamRequest request)
    {
        request.RequestId = (++_count).ToString(CultureInfo.InvariantCulture);
        _outbox.Writer.TryWrite(request);
    }

    [SuppressMessage("Design", "CA1031:Do not catch general exception types", Justification = "passed on to whoever waits")]
    private async Task RunAsync(IStreamDoor door, CancellationToken ending)
    {
        try
        {
            using var stop = CancellationTokenSource.CreateLinkedTokenSource(ending);
            var conversation = await door.OpenAsync(stop.Token).ConfigureAwait(false);
            await using var closing = conversation.ConfigureAwait(false);
            await Parts.AllAsync(stop, SendAsync(conversation, stop.Token), ReceiveAsync(conversation)).ConfigureAwait(false);
            const string Message = "ended the stream of sessions; they are opened again by their next push";
            End(new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, $"{door.Settings.Target} {Message}").ToException());
        }
        catch (Exception failure)
        {
            End(failure);
        }
    }

    private async Task SendAsync(IConversation conversation, CancellationToken cancellationToken)
    {
        await foreach (var request in _outbox.Reader.ReadAllAsync(cancellationToken).ConfigureAwait(false))
        {
            if (!await conversation.SendAsync(request).ConfigureAwait(false))
                return;
        }

        await conversation.EndAsync().ConfigureAwait(false);
    }

    private async Task ReceiveAsync(IConversation conversation)
    {
        while (await conversation.NextAsync().ConfigureAwait(false) is { } response)
            Receive(response);
        End(); // a server that ends the call by itself: nothing more is sent
    }

    private void Receive(V1.PredictStreamResponse response)
    {
        TaskCompletionSource<V1.PredictStreamResponse>? answer;
        lock (_gate)
            _waiting.Remove(response.RequestId, out answer);
        answer?.TrySetResult(response);
    }

    private void End(Exception failure)
    {
        TaskCompletionSource<V1.PredictStreamResponse>[] waiting;
        lock (_gate)
        {
            _end = failure;
            waiting = [.. _waiting.Values];
            _waiting.Clear();
        }

        End();
        foreach (var answer in waiting)
            answer.TrySetException(Again(failure));
    }

    /// <summary>The same failure, for another one who gets it.</summary>
    private static Exception Again(Exception failure) =>
        failure is QuantraException quantra ? quantra.Error.ToException(quantra.InnerException) : failure;
}
