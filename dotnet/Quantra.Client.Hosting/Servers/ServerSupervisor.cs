using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Starts a server process and restarts it after failures, until it is stopped or no restart is left.</summary>
[SuppressMessage("Design", "CA1001:Types that own disposable fields should be disposable", Justification = "token sources without a timer hold no resources")]
internal sealed class ServerSupervisor
{
    private readonly QuantraServerOptions _options;
    private readonly ServerTokens _tokens;
    private readonly ServerLog _log;
    private readonly TimeProvider _time;
    private readonly Action<ServerSupervisor, QuantraServerStatus> _publish;
    private readonly CancellationTokenSource _stop = new();
    private readonly CancellationTokenSource _forceStop = new();
    private int _restarts;
    private bool _wasEverReady;

    public ServerSupervisor(
        QuantraServerOptions options, ServerTokens tokens, ServerLog log, TimeProvider time, Action<ServerSupervisor, QuantraServerStatus> publish)
    {
        (_options, _tokens, _log, _time, _publish) = (options, tokens, log, time, publish);
    }

    /// <summary>Whether it was asked to stop.</summary>
    public bool IsStopping { get; private set; }

    /// <summary>Completes when the server has ended.</summary>
    public Task Ended { get; private set; } = Task.CompletedTask;

    /// <summary>Starts on a pool thread, after a previous supervisor has ended.</summary>
    public void Start(Task after) => Ended = Task.Run(() => RunAsync(after));

    /// <summary>Marks the supervisor as stopping. <see cref="StopAsync"/> does the stopping.</summary>
    public void MarkStopping() => IsStopping = true;

    /// <summary>Stops the server and waits for its end. The token cuts the grace time short.</summary>
    public async Task StopAsync(CancellationToken forceStop)
    {
        using var registration = forceStop.UnsafeRegister(_ => _forceStop.Cancel(), null);
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
            // Without this status, callers would wait forever for a server that is no longer supervised.
            var message = $"the server is no longer supervised, which is a bug in Quantra: {bug.Message}";
            Publish(QuantraServerState.Failed, new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, message));
            throw;
        }
    }

    private async Task KeepRunningAsync()
    {
        var budget = new RestartBudget(_options, _time);
        while (await RunOnceAsync().ConfigureAwait(false) is { Error: { } error } exit)
        {
            if (IsPermanent(exit) || budget.Spend(exit.WasReady) is not { } wait)
            {
                Publish(QuantraServerState.Failed, error);
                _log.Failed(error.Message);
                return;
            }

            _restarts++;
            _log.Restarting(error.Message, wait.TotalSeconds);
            Publish(QuantraServerState.Starting, error);
            if (!await TryDelayAsync(wait).ConfigureAwait(false))
                break;
        }

        _log.Stopped();
    }

    /// <summary>Runs one process from start to end.</summary>
    private async Task<ServerExit> RunOnceAsync()
    {
        try
        {
            var process = new ServerProcess(_options, ServerCommand.Create(_options, _tokens), _log, _time);
            await using (process.ConfigureAwait(false))
                return await process.RunAsync(OnHealthChanged, _stop.Token, _forceStop.Token).ConfigureAwait(false);
        }
        catch (QuantraException error)
        {
            return ServerExit.NotStarted(error.Error);
        }
    }

    /// <summary>A server that has been ready before may recover, regardless of its exit code.</summary>
    private bool IsPermanent(ServerExit exit) => exit.IsPermanent && !_wasEverReady;

    /// <summary>Waits. Returns false if a stop was requested meanwhile.</summary>
    private async Task<bool> TryDelayAsync(TimeSpan wait)
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

    private void OnHealthChanged(ReadyLine ready, QuantraError? problem)
    {
        if (problem is not null)
            _log.Unhealthy(problem.Message);
        else
            _log.Ready(ready.Port, ready.ProcessId, ready.Version, _restarts);
        _wasEverReady = true;
        _publish(this, new QuantraServerStatus
        {
            State = problem is null ? QuantraServerState.Ready : QuantraServerState.Degraded,
            Port = ready.Port,
            AdminPort = ready.AdminPort,
            ProcessId = ready.ProcessId,
            Version = ready.Version,
            Restarts = _restarts,
            Error = problem,
        });
    }

    private void Publish(QuantraServerState state, QuantraError error) =>
        _publish(this, new QuantraServerStatus { State = state, Restarts = _restarts, Error = error });
}
