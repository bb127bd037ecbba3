namespace Quantra.Client.Wire;

/// <summary>The predictor's side of a session. Takes one request at a time.</summary>
internal sealed class RemoteSession(IStreamTransport transport, SessionRegistry registry, string name)
{
    private static readonly QuantraError Interrupted = new(
        QuantraStatus.Cancelled,
        QuantraReason.Cancelled,
        "a push was interrupted, so its outcome is unknown");

    private SessionHandle? _handle;

    /// <summary>Why the session was lost.</summary>
    public QuantraError? Loss { get; private set; }

    /// <summary>Whether the session is open, as far as the client knows.</summary>
    public bool IsOpen => Volatile.Read(ref _handle) is not null;

    /// <summary>Opens a session with a history of bars.</summary>
    /// <returns>The forecast for that history.</returns>
    /// <exception cref="QuantraException">The request was rejected or timed out.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled; no session is open.</exception>
    public async Task<Forecast> OpenAsync(SessionRequest request, Deadline deadline, ICallTelemetry telemetry, CancellationToken cancellationToken)
    {
        for (var attempt = 1; ; attempt++)
        {
            TimeSpan delay;
            try
            {
                return await OpenOnceAsync(request, deadline, cancellationToken).ConfigureAwait(false);
            }
            catch (QuantraException failure) when (transport.Settings.RetryDelay(attempt, failure.Error, deadline) is { } wait)
            {
                delay = wait;
            }

            await Task.Delay(delay, cancellationToken).ConfigureAwait(false);
            telemetry.Retry();
        }
    }

    /// <summary>Pushes bars to the open session.</summary>
    /// <exception cref="QuantraException">The push was rejected. Or its outcome is unknown, and the session is closed.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled before the push was accepted. Or its outcome is unknown, as above.</exception>
    public async Task<PushResult> PushAsync(SessionPush push, Deadline deadline, CancellationToken cancellationToken)
    {
        var handle = _handle!;
        var request = RequestWriter.PushBars(handle.Id, push);
        SetTimeout(request, deadline);
        var (isKnown, loss) = (false, Interrupted);
        try
        {
            var response = await SendAsync(handle, request, cancellationToken).ConfigureAwait(false);
            isKnown = IsError(response); // a rejected push leaves the session unchanged
            if (isKnown)
                cancellationToken.ThrowIfCancellationRequested();
            var result = StreamResponseReader.Push(response);
            isKnown = true;
            return result;
        }
        catch (QuantraException failure)
        {
            loss = failure.Error;
            throw;
        }
        finally
        {
            if (!isKnown)
                Lose(loss);
        }
    }

    /// <summary>Closes the session if it is open.</summary>
    public async Task CloseAsync()
    {
        if (Interlocked.Exchange(ref _handle, null) is not { } handle)
            return;
        Task closed = handle.Call.SendAsync(RequestWriter.CloseSession(handle.Id));
        registry.ReleaseCall(handle.Call);
        await closed.WaitAsync(transport.Settings.ResponseGrace).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
    }

    /// <summary>Closes the session without waiting for the response.</summary>
    public void Abandon()
    {
        if (Interlocked.Exchange(ref _handle, null) is { } handle)
            Abandon(handle);
    }

    private void Lose(QuantraError why)
    {
        Loss = why;
        Abandon();
    }

    private void Abandon(SessionHandle handle)
    {
        handle.Call.Post(RequestWriter.CloseSession(handle.Id));
        registry.ReleaseCall(handle.Call);
    }

    private async Task<Forecast> OpenOnceAsync(SessionRequest request, Deadline deadline, CancellationToken cancellationToken)
    {
        var id = registry.NextId(name);
        var message = RequestWriter.OpenSession(id, request);
        SetTimeout(message, deadline);
        var handle = new SessionHandle(registry.AcquireCall(), id);
        var isOpen = false;
        try
        {
            var response = await SendAsync(handle, message, cancellationToken).ConfigureAwait(false);
            if (IsError(response))
                cancellationToken.ThrowIfCancellationRequested();
            var forecast = StreamResponseReader.Forecast(response);
            Volatile.Write(ref _handle, handle);
            isOpen = true;
            return forecast;
        }
        finally
        {
            if (!isOpen)
                Abandon(handle);
        }
    }

    /// <summary>Sets the remaining time of the request and checks its size.</summary>
    /// <exception cref="QuantraException">DEADLINE_EXCEEDED or REQUEST_TOO_LARGE.</exception>
    private void SetTimeout(V1.PredictStreamRequest request, Deadline deadline)
    {
        var remaining = deadline.Remaining;
        if (remaining <= TimeSpan.Zero)
            throw transport.Settings.CreateDeadlineError().ToException();
        request.TimeoutS = remaining.TotalSeconds;
        RequestSize.Check(request, transport.Settings.MaxRequestBytes);
    }

    /// <summary>Sends a request and waits for its response, after a cancellation too: the response says whether the request took effect.</summary>
    private async Task<V1.PredictStreamResponse> SendAsync(SessionHandle handle, V1.PredictStreamRequest request, CancellationToken cancellationToken)
    {
        var grace = transport.Settings.ResponseGrace;
        var response = handle.Call.SendAsync(request);
        try
        {
            return await response.WaitAsync(TimeSpan.FromSeconds(request.TimeoutS) + grace, cancellationToken).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            handle.Call.Forget(request);
            throw transport.Settings.CreateNoResponseError();
        }
        catch (OperationCanceledException) when (!response.IsCompleted)
        {
            handle.Call.Post(RequestWriter.Cancel(request.RequestId));
            await ((Task)response).WaitAsync(grace, CancellationToken.None).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            handle.Call.Forget(request);
            if (response.IsCompletedSuccessfully)
                return await response.ConfigureAwait(false);
            throw;
        }
    }

    private static bool IsError(V1.PredictStreamResponse response) =>
        response.OutcomeCase == V1.PredictStreamResponse.OutcomeOneofCase.Error;
}
