namespace Quantra.Client.Wire;

/// <summary>Where a session is open at the predictor; one request at a time.</summary>
/// <param name="door">The way to the predictor.</param>
/// <param name="streams">The call that sessions share.</param>
/// <param name="name">Of the session.</param>
internal sealed class SessionLink(IStreamDoor door, SessionStreams streams, string name)
{
    private static readonly QuantraError BrokenOff = new(
        QuantraStatus.Cancelled,
        QuantraReason.Cancelled,
        "a push was broken off, and nobody knows whether it was taken");

    private OpenedSession? _opened;

    /// <summary>Why it is not open any more.</summary>
    public QuantraError? Loss { get; private set; }

    /// <summary>Whether it is open, as far as is known.</summary>
    public bool IsOpen => Volatile.Read(ref _opened) is not null;

    /// <summary>Opens a session with this history.</summary>
    /// <returns>The forecast of it.</returns>
    /// <exception cref="QuantraException">It was refused, or nobody answered.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled, and no session is open.</exception>
    public async Task<Forecast> OpenAsync(SessionRequest request, Deadline deadline, IWatchedCall watched, CancellationToken cancellationToken)
    {
        for (var attempt = 1; ; attempt++)
        {
            TimeSpan pause;
            try
            {
                return await OpenOnceAsync(request, deadline, cancellationToken).ConfigureAwait(false);
            }
            catch (QuantraException failure) when (door.Settings.PauseAfter(attempt, failure.Error, deadline) is { } wait)
            {
                pause = wait;
            }

            await Task.Delay(pause, cancellationToken).ConfigureAwait(false);
            watched.TryAgain();
        }
    }

    /// <summary>Pushes bars.</summary>
    /// <returns>What became of them.</returns>
    /// <exception cref="QuantraException">They were refused; or nobody knows whether they were taken, and the session is open no more.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled, and they were not taken; or nobody knows, as above.</exception>
    public async Task<PushResult> PushAsync(SessionPush push, Deadline deadline, CancellationToken cancellationToken)
    {
        var opened = _opened!;
        var request = RequestWriter.PushBars(opened.Id, push);
        Prepare(request, deadline);
        var (isKnown, loss) = (false, BrokenOff);
        try
        {
            var response = await AskAsync(opened, request, cancellationToken).ConfigureAwait(false);
            isKnown = IsRefusal(response); // the session is as it was
            if (isKnown)
                cancellationToken.ThrowIfCancellationRequested();
            var result = StreamAnswers.Pushed(response);
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

    /// <summary>Ends the session; that it has ended already is as good.</summary>
    public async Task CloseAsync()
    {
        if (Interlocked.Exchange(ref _opened, null) is not { } opened)
            return;
        Task closed = opened.Stream.AskAsync(RequestWriter.CloseSession(opened.Id));
        streams.Leave(opened.Stream);
        await closed.WaitAsync(door.Settings.Silence).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
    }

    /// <summary>Ends the session without waiting.</summary>
    public void Abandon()
    {
        if (Interlocked.Exchange(ref _opened, null) is { } opened)
            Abandon(opened);
    }

    private void Lose(QuantraError why)
    {
        Loss = why;
        Abandon();
    }

    private void Abandon(OpenedSession opened)
    {
        opened.Stream.Tell(RequestWriter.CloseSession(opened.Id));
        streams.Leave(opened.Stream);
    }

    private async Task<Forecast> OpenOnceAsync(SessionRequest request, Deadline deadline, CancellationToken cancellationToken)
    {
        var id = streams.NextId(name);
        var message = RequestWriter.OpenSession(id, request);
        Prepare(message, deadline);
        var opened = new OpenedSession(streams.Enter(), id);
        var isOpen = false;
        try
        {
            var response = await AskAsync(opened, message, cancellationToken).ConfigureAwait(false);
            if (IsRefusal(response))
                cancellationToken.ThrowIfCancellationRequested();
            var forecast = StreamAnswers.Forecast(response);
            Volatile.Write(ref _opened, opened);
            isOpen = true;
            return forecast;
        }
        finally
        {
            if (!isOpen)
                Abandon(opened);
        }
    }

    /// <summary>Says how long the answer may take.</summary>
    /// <exception cref="QuantraException">DEADLINE_EXCEEDED: it is too late already. REQUEST_TOO_LARGE.</exception>
    private void Prepare(V1.PredictStreamRequest request, Deadline deadline)
    {
        var left = deadline.Left;
        if (left <= TimeSpan.Zero)
            throw door.Settings.TooLate().ToException();
        request.TimeoutS = left.TotalSeconds;
        RequestSize.Check(request, door.Settings.MaxRequestBytes);
    }

    /// <summary>The response to a request. Who cancels waits for it too, as it tells whether the request was taken.</summary>
    private async Task<V1.PredictStreamResponse> AskAsync(OpenedSession opened, V1.PredictStreamRequest request, CancellationToken cancellationToken)
    {
        var silence = door.Settings.Silence;
        var answer = opened.Stream.AskAsync(request);
        try
        {
            return await answer.WaitAsync(TimeSpan.FromSeconds(request.TimeoutS) + silence, cancellationToken).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            opened.Stream.Forget(request);
            throw door.Settings.Silent();
        }
        catch (OperationCanceledException) when (!answer.IsCompleted)
        {
            opened.Stream.Tell(RequestWriter.Cancel(request.RequestId));
            await ((Task)answer).WaitAsync(silence, CancellationToken.None).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            opened.Stream.Forget(request);
            if (answer.IsCompletedSuccessfully)
                return await answer.ConfigureAwait(false);
            throw;
        }
    }

    private static bool IsRefusal(V1.PredictStreamResponse response) =>
        response.OutcomeCase == V1.PredictStreamResponse.OutcomeOneofCase.Error;
}
