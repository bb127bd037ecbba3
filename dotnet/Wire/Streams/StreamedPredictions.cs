using System.Diagnostics.CodeAnalysis;
using System.Threading.Channels;

namespace Quantra.Client.Wire;

/// <summary>
/// One stream of requests: takes them from the caller while there is room, sends them, and hands out results as they are ready. Where a
/// call breaks that may be repeated, what has no answer is asked over another one, for forecasts change nothing.
/// </summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "without a handle to wait for, the semaphore holds nothing")]
internal sealed class StreamedPredictions
{
    private readonly IStreamDoor _door;
    private readonly IAsyncEnumerable<PredictionRequest> _requests;
    private readonly CancellationToken _closing;
    private readonly ChannelWriter<StreamedAnswer> _answers;
    private readonly AskedRequests _asked;
    private readonly SemaphoreSlim _room;
    private readonly Channel<AskedRequest> _outbox = Channel.CreateUnbounded<AskedRequest>();
    private int _calls;
    private bool _isCutOff;

    /// <param name="door">The way to the predictor.</param>
    /// <param name="requests">The caller's.</param>
    /// <param name="answers">Takes results as they are ready, at most as many as there may be in flight.</param>
    /// <param name="closing">Once it is cancelled, no more requests are taken.</param>
    public StreamedPredictions(
        IStreamDoor door,
        IAsyncEnumerable<PredictionRequest> requests,
        ChannelWriter<StreamedAnswer> answers,
        CancellationToken closing)
    {
        (_door, _requests, _answers, _closing) = (door, requests, answers, closing);
        _asked = new AskedRequests(door.Settings);
        _room = new SemaphoreSlim(door.Settings.MaxInFlight);
    }

    private CallSettings Settings => _door.Settings;

    /// <summary>Works until all is answered.</summary>
    /// <exception cref="QuantraException">The whole call failed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public Task RunAsync(CancellationToken cancellationToken) => _door.Watch.BeginStream().WatchAsync(async () =>
    {
        using var stop = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        var taking = Task.Run(() => TakeAsync(stop.Token), CancellationToken.None); // the caller's code may hold its thread
        await Parts.AllAsync(stop, taking, ConverseAsync(stop.Token)).ConfigureAwait(false);
        if (_isCutOff)
            throw Failure(QuantraStatus.Cancelled, QuantraReason.Cancelled, "the predictor was disposed before all requests of the stream were taken");
        return true;
    });

    /// <summary>The caller reads a result, which makes room for another request.</summary>
    public PredictionResult Read(StreamedAnswer answer)
    {
        if (answer.FreesName)
            _asked.Leave(answer.Result.RequestId);
        _room.Release();
        return answer.Result;
    }

    /// <summary>Takes the caller's requests while there is room.</summary>
    private async Task TakeAsync(CancellationToken cancellationToken)
    {
        using var open = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _closing);
        var source = new RequestSource(_requests, open.Token);
        await using var ending = source.ConfigureAwait(false);
        try
        {
            await _room.WaitAsync(open.Token).ConfigureAwait(false);
            while (await source.MoveNextAsync().ConfigureAwait(false))
            {
                Enter(source.Current);
                await _room.WaitAsync(open.Token).ConfigureAwait(false);
            }
        }
        catch (OperationCanceledException) when (_closing.IsCancellationRequested && !cancellationToken.IsCancellationRequested)
        {
            _isCutOff = true;
        }

        _asked.Complete();
        CompleteIfDone();
    }

    private void Enter(PredictionRequest request)
    {
        NullCheck.Request(request, "requests", _asked.Count);
        var (asked, isNew) = _asked.Enter(request);
        if (isNew)
        {
            _outbox.Writer.TryWrite(asked);
            return;
        }

        var message = $"request '{asked.Name}' is under way already; read its result first, or take another id";
        var facts = new Dictionary<string, string> { ["request_id"] = asked.Name };
        var error = new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.DuplicateId, message, facts);
        _answers.TryWrite(new StreamedAnswer(new(asked.Name, null, error), FreesName: false));
    }

    /// <summary>Converses, over one call after the other where one breaks, until all is answered.</summary>
    private async Task ConverseAsync(CancellationToken cancellationToken)
    {
        for (var failures = 0; await HasWorkAsync(cancellationToken).ConfigureAwait(false);)
        {
            var before = _asked.Answered;
            try
            {
                await ConverseOnceAsync(cancellationToken).ConfigureAwait(false);
            }
            catch (QuantraException failure)
            {
                var wasAnswered = _asked.Answered > before;
                failures = wasAnswered ? 1 : failures + 1;
                if (failures >= Settings.MaxAttempts || !MayGoOn(failure.Error, wasAnswered))
                    throw;
                _door.Watch.GoesOn(failure.Reason);
                await Task.Delay(Backoff.After(failures, failure.Error), cancellationToken).ConfigureAwait(false);
            }
        }
    }

    /// <summary>A token that was good may have been replaced: it is asked for anew with each call.</summary>
    private static bool MayGoOn(QuantraError error, bool wasAnswered) =>
        error.IsTransient || (error.Reason == QuantraReason.Unauthenticated && wasAnswered);

    /// <summary>Waits for a request; false once there will be none.</summary>
    private async ValueTask<bool> HasWorkAsync(CancellationToken cancellationToken) =>
        _asked.Unanswered().Length > 0 || await _outbox.Reader.WaitToReadAsync(cancellationToken).ConfigureAwait(false);

    private async Task ConverseOnceAsync(CancellationToken cancellationToken)
    {
        using var stop = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        var conversation = await _door.OpenAsync(stop.Token).ConfigureAwait(false);
        await using var ending = conversation.ConfigureAwait(false);
        await Parts.AllAsync(stop, SendAsync(conversation, ++_calls, stop.Token), ReceiveAsync(conversation, stop.Token)).ConfigureAwait(false);
    }

    private async Task SendAsync(IConversation conversation, int call, CancellationToken cancellationToken)
    {
        foreach (var asked in _asked.Unanswered())
        {
            if (!await SendAsync(conversation, asked, call).ConfigureAwait(false))
                return;
        }

        await foreach (var asked in _outbox.Reader.ReadAllAsync(cancellationToken).ConfigureAwait(false))
        {
            if (!await SendAsync(conversation, asked, call).ConfigureAwait(false))
                return;
        }

        await conversation.EndAsync().ConfigureAwait(false);
    }

    /// <summary>Sends one request, unless it cannot be: then that is its result.</summary>
    /// <returns>Whether others can be sent.</returns>
    private async ValueTask<bool> SendAsync(IConversation conversation, AskedRequest asked, int call)
    {
        if (!_asked.IsToSend(asked, call))
            return true;
        var left = asked.Deadline.Left;
        if (left <= TimeSpan.Zero)
        {
            Answer(asked, new(asked.Name, null, Settings.TooLate()));
            return true;
        }

        var message = RequestWriter.StreamPredict(asked.Request);
        (message.RequestId, message.TimeoutS) = (asked.WireId, left.TotalSeconds);
        try
        {
            RequestSize.Check(message, Settings.MaxRequestBytes);
        }
        catch (QuantraException refusal)
        {
            Answer(asked, new(asked.Name, null, refusal.Error));
            return true;
        }

        return await conversation.SendAsync(message).ConfigureAwait(false);
    }

    private async Task ReceiveAsync(IConversation conversation, CancellationToken cancellationToken)
    {
        try
        {
            while (await NextAsync(conversation, cancellationToken).ConfigureAwait(false) is { } response)
                Receive(response, cancellationToken);
        }
        catch (QuantraException) when (_asked.IsDone)
        {
            return; // all is answered: how the call itself ended is of no account
        }

        if (!_asked.IsDone)
            throw Failure(QuantraStatus.Internal, QuantraReason.Internal, $"{Settings.Target} ended the stream before all its requests were answered");
    }

    /// <summary>The next response, unless the predictor has fallen silent.</summary>
    private async ValueTask<V1.PredictStreamResponse?> NextAsync(IConversation conversation, CancellationToken cancellationToken)
    {
        for (var next = conversation.NextAsync(); ;)
        {
            var patience = _asked.UntilSilent;
            if (patience <= TimeSpan.Zero && !next.IsCompleted)
                throw Settings.Silent();
            try
            {
                return await next.WaitAsync(patience < TimeSpan.Zero ? TimeSpan.Zero : patience, cancellationToken).ConfigureAwait(false);
            }
            catch (TimeoutException)
            {
                if (_asked.IsDone && !next.IsCompleted)
                    return null;
            }
        }
    }

    private void Receive(V1.PredictStreamResponse response, CancellationToken cancellationToken)
    {
        if (_asked.Find(response.RequestId) is not { } asked)
        {
            var message = $"{Settings.Target} answered a request that is not under way; use the same version of client and server";
            throw Failure(QuantraStatus.Internal, QuantraReason.Internal, message);
        }

        var result = StreamAnswers.Result(asked.Name, response);
        asked.Attempts++;
        if (result.Error is { } error && Settings.PauseAfter(asked.Attempts, error, asked.Deadline) is { } pause)
            _ = AskAgainAsync(asked, pause, cancellationToken);
        else
            Answer(asked, result);
    }

    private async Task AskAgainAsync(AskedRequest asked, TimeSpan pause, CancellationToken cancellationToken)
    {
        await Task.Delay(pause, cancellationToken).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        _asked.Again(asked);
        _outbox.Writer.TryWrite(asked);
    }

    private void Answer(AskedRequest asked, PredictionResult result)
    {
        _door.Watch.Answered(asked.Request.Model.Text, asked.Took, result.Error?.Reason);
        _answers.TryWrite(new StreamedAnswer(result, FreesName: true));
        _asked.Answer(asked);
        CompleteIfDone();
    }

    private void CompleteIfDone()
    {
        if (_asked.IsDone)
            _outbox.Writer.TryComplete();
    }

    private static QuantraException Failure(QuantraStatus code, string reason, string message) => new QuantraError(code, reason, message).ToException();
}
