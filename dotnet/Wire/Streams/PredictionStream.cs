using System.Diagnostics.CodeAnalysis;
using System.Threading.Channels;

namespace Quantra.Client.Wire;

/// <summary>
/// Runs one stream of predictions: takes requests from the caller within the limit, sends them, and yields results as they arrive. If a
/// call breaks and may be repeated, another call sends the unanswered requests again; predictions have no side effects.
/// </summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "semaphores without a wait handle hold no resources")]
internal sealed class PredictionStream
{
    private readonly IStreamTransport _transport;
    private readonly IAsyncEnumerable<PredictionRequest> _requests;
    private readonly CancellationToken _closing;
    private readonly ChannelWriter<StreamResult> _results;
    private readonly PendingRequests _pending;
    private readonly SemaphoreSlim _freeSlots;
    private readonly Channel<PendingRequest> _outbox = Channel.CreateUnbounded<PendingRequest>();
    private int _callCount;
    private bool _isInterrupted;

    /// <param name="transport">Opens the calls.</param>
    /// <param name="requests">The caller's requests.</param>
    /// <param name="results">Receives the results, at most MaxInFlight of them at a time.</param>
    /// <param name="closing">When cancelled, no more requests are taken.</param>
    public PredictionStream(
        IStreamTransport transport,
        IAsyncEnumerable<PredictionRequest> requests,
        ChannelWriter<StreamResult> results,
        CancellationToken closing)
    {
        (_transport, _requests, _results, _closing) = (transport, requests, results, closing);
        _pending = new PendingRequests(transport.Settings);
        _freeSlots = new SemaphoreSlim(transport.Settings.MaxInFlight);
    }

    private CallSettings Settings => _transport.Settings;

    /// <summary>Runs until every request is answered.</summary>
    /// <exception cref="QuantraException">The stream as a whole failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public Task RunAsync(CancellationToken cancellationToken) => _transport.Telemetry.BeginStream().TrackAsync(async () =>
    {
        using var stop = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        var taking = Task.Run(() => TakeAsync(stop.Token), CancellationToken.None); // the caller's enumerator may block its thread
        await TaskGroup.WhenAllAsync(stop, taking, RunCallsAsync(stop.Token)).ConfigureAwait(false);
        if (_isInterrupted)
            throw Failure(QuantraStatus.Cancelled, QuantraReason.Cancelled, "the predictor was disposed before it took all requests of the stream");
        return true;
    });

    /// <summary>Records that the caller read a result, which makes room for another request.</summary>
    public PredictionResult Read(StreamResult result)
    {
        if (result.ReleasesId)
            _pending.ReleaseId(result.Result.RequestId);
        _freeSlots.Release();
        return result.Result;
    }

    private async Task TakeAsync(CancellationToken cancellationToken)
    {
        using var open = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _closing);
        var source = new RequestSource(_requests, open.Token);
        await using var ending = source.ConfigureAwait(false);
        try
        {
            await _freeSlots.WaitAsync(open.Token).ConfigureAwait(false);
            while (await source.MoveNextAsync().ConfigureAwait(false))
            {
                AddRequest(source.Current);
                await _freeSlots.WaitAsync(open.Token).ConfigureAwait(false);
            }
        }
        catch (OperationCanceledException) when (_closing.IsCancellationRequested && !cancellationToken.IsCancellationRequested)
        {
            _isInterrupted = true;
        }

        _pending.Complete();
        CompleteIfDone();
    }

    private void AddRequest(PredictionRequest request)
    {
        NullCheck.Request(request, "requests", _pending.Count);
        var (pending, isAdded) = _pending.Add(request);
        if (isAdded)
        {
            _outbox.Writer.TryWrite(pending);
            return;
        }

        var message = $"request '{pending.Id}' is already in progress; read its result first, or use another id";
        var metadata = new Dictionary<string, string> { ["request_id"] = pending.Id };
        var error = new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.DuplicateId, message, metadata);
        _results.TryWrite(new StreamResult(new(pending.Id, null, error), ReleasesId: false));
    }

    /// <summary>Makes calls until every request is answered. A call that breaks is followed by another.</summary>
    private async Task RunCallsAsync(CancellationToken cancellationToken)
    {
        for (var failures = 0; await HasRequestsAsync(cancellationToken).ConfigureAwait(false);)
        {
            var before = _pending.AnsweredCount;
            try
            {
                await RunCallAsync(cancellationToken).ConfigureAwait(false);
            }
            catch (QuantraException failure)
            {
                var hadAnswers = _pending.AnsweredCount > before;
                failures = hadAnswers ? 1 : failures + 1;
                if (failures >= Settings.MaxAttempts || !CanContinue(failure.Error, hadAnswers))
                    throw;
                _transport.Telemetry.StreamResumed(failure.Reason);
                await Task.Delay(Backoff.After(failures, failure.Error), cancellationToken).ConfigureAwait(false);
            }
        }
    }

    /// <summary>Whether the stream may continue. An expired token is worth another call, because each call asks for a new token.</summary>
    private static bool CanContinue(QuantraError error, bool hadAnswers) =>
        error.IsTransient || (error.Reason == QuantraReason.Unauthenticated && hadAnswers);

    /// <summary>Waits for an unanswered request. Returns false when no more will come.</summary>
    private async ValueTask<bool> HasRequestsAsync(CancellationToken cancellationToken) =>
        _pending.TakeUnanswered().Length > 0 || await _outbox.Reader.WaitToReadAsync(cancellationToken).ConfigureAwait(false);

    private async Task RunCallAsync(CancellationToken cancellationToken)
    {
        using var stop = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        var call = await _transport.OpenAsync(stop.Token).ConfigureAwait(false);
        await using var ending = call.ConfigureAwait(false);
        await TaskGroup.WhenAllAsync(stop, SendAsync(call, ++_callCount, stop.Token), ReceiveAsync(call, stop.Token)).ConfigureAwait(false);
    }

    private async Task SendAsync(IDuplexCall call, int number, CancellationToken cancellationToken)
    {
        foreach (var pending in _pending.TakeUnanswered())
        {
            if (!await SendAsync(call, pending, number).ConfigureAwait(false))
                return;
        }

        await foreach (var pending in _outbox.Reader.ReadAllAsync(cancellationToken).ConfigureAwait(false))
        {
            if (!await SendAsync(call, pending, number).ConfigureAwait(false))
                return;
        }

        await call.CompleteAsync().ConfigureAwait(false);
    }

    /// <summary>Sends one request. A request that cannot be sent is answered with the error.</summary>
    /// <returns>Whether the call can send more requests.</returns>
    private async ValueTask<bool> SendAsync(IDuplexCall call, PendingRequest pending, int number)
    {
        if (!_pending.TryMarkSent(pending, number))
            return true;
        var remaining = pending.Deadline.Remaining;
        if (remaining <= TimeSpan.Zero)
        {
            Answer(pending, new(pending.Id, null, Settings.CreateDeadlineError()));
            return true;
        }

        var message = RequestWriter.StreamPredict(pending.Request);
        (message.RequestId, message.TimeoutS) = (pending.WireId, remaining.TotalSeconds);
        try
        {
            RequestSize.Check(message, Settings.MaxRequestBytes);
        }
        catch (QuantraException rejection)
        {
            Answer(pending, new(pending.Id, null, rejection.Error));
            return true;
        }

        return await call.SendAsync(message).ConfigureAwait(false);
    }

    private async Task ReceiveAsync(IDuplexCall call, CancellationToken cancellationToken)
    {
        try
        {
            while (await ReadAsync(call, cancellationToken).ConfigureAwait(false) is { } response)
                Receive(response, cancellationToken);
        }
        catch (QuantraException) when (_pending.IsDone)
        {
            return; // every request is answered, so the status of the call does not matter
        }

        if (!_pending.IsDone)
            throw Failure(QuantraStatus.Internal, QuantraReason.Internal, $"{Settings.Target} ended the stream before it answered all requests");
    }

    /// <summary>Waits for the next response; throws if the predictor stays silent for too long.</summary>
    private async ValueTask<V1.PredictStreamResponse?> ReadAsync(IDuplexCall call, CancellationToken cancellationToken)
    {
        for (var next = call.ReadAsync(); ;)
        {
            var wait = _pending.TimeUntilSilent;
            if (wait <= TimeSpan.Zero && !next.IsCompleted)
                throw Settings.CreateNoResponseError();
            try
            {
                return await next.WaitAsync(wait < TimeSpan.Zero ? TimeSpan.Zero : wait, cancellationToken).ConfigureAwait(false);
            }
            catch (TimeoutException)
            {
                if (_pending.IsDone && !next.IsCompleted)
                    return null;
            }
        }
    }

    private void Receive(V1.PredictStreamResponse response, CancellationToken cancellationToken)
    {
        if (_pending.Find(response.RequestId) is not { } pending)
        {
            var message = $"{Settings.Target} answered an unknown request; use the same version of client and server";
            throw Failure(QuantraStatus.Internal, QuantraReason.Internal, message);
        }

        var result = StreamResponseReader.Result(pending.Id, response);
        pending.Attempts++;
        if (result.Error is { } error && Settings.RetryDelay(pending.Attempts, error, pending.Deadline) is { } delay)
            _ = RetryAsync(pending, delay, cancellationToken);
        else
            Answer(pending, result);
    }

    private async Task RetryAsync(PendingRequest pending, TimeSpan delay, CancellationToken cancellationToken)
    {
        await Task.Delay(delay, cancellationToken).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        _pending.MarkUnsent(pending);
        _outbox.Writer.TryWrite(pending);
    }

    private void Answer(PendingRequest pending, PredictionResult result)
    {
        _transport.Telemetry.RequestCompleted(pending.Request.Model.Text, pending.Elapsed, result.Error?.Reason);
        _results.TryWrite(new StreamResult(result, ReleasesId: true));
        _pending.MarkAnswered(pending);
        CompleteIfDone();
    }

    private void CompleteIfDone()
    {
        if (_pending.IsDone)
            _outbox.Writer.TryComplete();
    }

    private static QuantraException Failure(QuantraStatus status, string reason, string message) => new QuantraError(status, reason, message).ToException();
}
