using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Keeps a server running, from a start by the program to its end or to one restart too many.</summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "without a timer the sources hold nothing")]
internal sealed class Supervision
{
    private readonly QuantraServerOptions _options;
    private readonly string _token;
    private readonly ServerLog _log;
    private readonly TimeProvider _time;
    private readonly Action<Supervision, QuantraServerStatus> _publish;
    private readonly CancellationTokenSource _stop = new();
    private readonly CancellationTokenSource _hurry = new();
    private int _restarts;
    private bool _wasEverReady;

    /// <param name="options">Of the server.</param>
    /// <param name="token">That it asks for.</param>
    /// <param name="log">Told what happens.</param>
    /// <param name="time">Of all waits.</param>
    /// <param name="publish">Told each change.</param>
    public Supervision(
        QuantraServerOptions options, string token, ServerLog log, TimeProvider time, Action<Supervision, QuantraServerStatus> publish)
    {
        (_options, _token, _log, _time, _publish) = (options, token, log, time, publish);
    }

    /// <summary>Whether it was told to end.</summary>
    public bool IsStopping { get; private set; }

    /// <summary>Completes with it.</summary>
    public Task Ended { get; private set; } = Task.CompletedTask;

    /// <summary>Begins, on other threads.</summary>
    /// <param name="after">Of another one that still ends, and first has to.</param>
    public void Begin(Task after) => Ended = Task.Run(() => RunAsync(after));

    /// <summary>Says that it has to end; <see cref="StopAsync"/> makes it.</summary>
    public void AskToStop() => IsStopping = true;

    /// <summary>Ends the server and waits for that.</summary>
    /// <param name="hurry">Cuts the server's grace time short.</param>
    public async Task StopAsync(CancellationToken hurry)
    {
        using var hurried = hurry.UnsafeRegister(_ => _hurry.Cancel(), null);
        await _stop.CancelAsync().ConfigureAwait(false);
        await Ended.ConfigureAwait(false);
    }

    private async Task RunAsync(Task after)
    {
        await after.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        try
        {
            await KeepRunningAsync().ConfigureAwait(false);
        }
        catch (Exception bug)
        {
            // Nobody may wait for a server that nobody starts any more.
            var message = $"the server is not watched any more, which is a bug of Quantra: {bug.Message}";
            Publish(QuantraServerState.Failed, new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message));
            throw;
        }
    }

    private async Task KeepRunningAsync()
    {
        var budget = new RestartBudget(_options, _time);
        while (await RunOnceAsync().ConfigureAwait(false) is { Error: { } error } end)
        {
            if (IsHopeless(end) || budget.Spend(end.WasReady) is not { } wait)
            {
                Publish(QuantraServerState.Failed, error);
                _log.Failed(error.Message);
                return;
            }

            _restarts++;
            _log.Restarting(error.Message, wait.TotalSeconds);
            Publish(QuantraServerState.Starting, error);
            if (!await HasPassedAsync(wait).ConfigureAwait(false))
                break;
        }

        _log.Stopped();
    }

    /// <summary>A process, from its start to its end.</summary>
    private async Task<ServerEnd> RunOnceAsync()
    {
        try
        {
            var run = new ServerRun(_options, ServerCommand.Of(_options, _token), _log, _time);
            await using (run.ConfigureAwait(false))
                return await run.EndAsync(Tell, _stop.Token, _hurry.Token).ConfigureAwait(false);
        }
        catch (QuantraException error)
        {
            return ServerEnd.NotBegun(error.Error);
        }
    }

    /// <summary>One that has worked may come back, whatever it says.</summary>
    private bool IsHopeless(ServerEnd end) => end.IsHopeless && !_wasEverReady;

    /// <summary>Whether the time has passed before the end was asked for.</summary>
    private async Task<bool> HasPassedAsync(TimeSpan wait)
    {
        try
        {
            await Task.Delay(wait, _time, _stop.Token).ConfigureAwait(false);
            return true;
        }
        catch (OperationCanceledException)
        {
            return false;
        }
    }

    private void Tell(ReadyLine ready, QuantraError? trouble)
    {
        if (trouble is not null)
            _log.Unwell(trouble.Message);
        else
            _log.Ready(ready.Port, ready.ProcessId, ready.Version, _restarts);
        _wasEverReady = true;
        _publish(this, new QuantraServerStatus
        {
            State = trouble is null ? QuantraServerState.Ready : QuantraServerState.Degraded,
            Port = ready.Port,
            ProcessId = ready.ProcessId,
            Version = ready.Version,
            Restarts = _restarts,
            Error = trouble,
        });
    }

    private void Publish(QuantraServerState state, QuantraError error) =>
        _publish(this, new QuantraServerStatus { State = state, Restarts = _restarts, Error = error });
}
