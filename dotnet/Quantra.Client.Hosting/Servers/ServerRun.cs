using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>One process of a server, from its start to its end.</summary>
internal sealed class ServerRun : IAsyncDisposable
{
    private readonly QuantraServerOptions _options;
    private readonly PythonCommand _command;
    private readonly ServerLog _log;
    private readonly TimeProvider _time;
    private readonly PythonProcess _process;
    private readonly TaskCompletionSource<ReadyLine?> _ready = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly Task _listening;
    private bool _wasReady;

    /// <summary>Starts the process.</summary>
    /// <param name="options">Of the server.</param>
    /// <param name="command">How the process is started.</param>
    /// <param name="log">Told what it writes.</param>
    /// <param name="time">Of all waits.</param>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the system cannot run it.</exception>
    public ServerRun(QuantraServerOptions options, PythonCommand command, ServerLog log, TimeProvider time)
    {
        (_options, _command, _log, _time) = (options, command, log, time);
        _process = PythonProcess.Start(command, log.Lines.Hear, time);
        _listening = ListenAsync();
    }

    /// <summary>Waits until the process ends by itself, does not do what it should, or is told to end, which it then has.</summary>
    /// <param name="tell">Told when it answers, when it is not well any more, with the reason, and when it is again.</param>
    /// <param name="stop">Tells it to end.</param>
    /// <param name="hurry">Cuts its grace time short.</param>
    public async Task<ServerEnd> EndAsync(Action<ReadyLine, QuantraError?> tell, CancellationToken stop, CancellationToken hurry)
    {
        try
        {
            var ready = await _ready.Task.WaitAsync(_options.StartTimeout, _time, stop).ConfigureAwait(false);
            if (ready is null)
                return await ByItselfAsync().ConfigureAwait(false);
            _wasReady = true;
            tell(ready, null);
            return await WatchAsync(ready, tell, stop).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            return await ByForceAsync($"it was not ready within {Seconds(_options.StartTimeout)}").ConfigureAwait(false);
        }
        catch (OperationCanceledException) when (stop.IsCancellationRequested)
        {
            // Before it is ready it has no calls to finish.
            await _process.StopAsync(_wasReady ? _options.GraceTime : TimeSpan.Zero, hurry).ConfigureAwait(false);
            return ServerEnd.Told(_wasReady);
        }
    }

    /// <summary>Ends the process by force, unless it has ended.</summary>
    public async ValueTask DisposeAsync()
    {
        await _process.DisposeAsync().ConfigureAwait(false);
        await _listening.ConfigureAwait(false);
    }

    /// <summary>Reads all of standard output, of which one line counts.</summary>
    private async Task ListenAsync()
    {
        await foreach (var line in _process.Output.ReadAllAsync(CancellationToken.None).ConfigureAwait(false))
        {
            _log.Heard(line);
            if (ReadyLine.Of(line) is { } ready)
                _ready.TrySetResult(ready);
        }

        _ready.TrySetResult(null);
    }

    /// <summary>Asks time and again whether the process is well, until it has ended, or has left too many questions unanswered.</summary>
    private async Task<ServerEnd> WatchAsync(ReadyLine ready, Action<ReadyLine, QuantraError?> tell, CancellationToken stop)
    {
        using var probe = new ServerProbe(ready.Port, _options.ProbeTimeout, _time);
        string? trouble = null;
        for (var missed = 0; !await HasEndedAsync(_options.ProbeInterval, stop).ConfigureAwait(false);)
        {
            var answer = await probe.AskAsync(stop).ConfigureAwait(false);
            missed = answer.IsAnswered ? 0 : missed + 1;
            if (missed == _options.MaxMissedProbes)
                return await ByForceAsync(answer.Trouble!).ConfigureAwait(false);
            if (answer.Trouble == trouble)
                continue;
            trouble = answer.Trouble;
            tell(ready, trouble is null ? null : ServerEnd.Unwell(_options.Models, trouble));
        }

        return await ByItselfAsync().ConfigureAwait(false);
    }

    private async Task<bool> HasEndedAsync(TimeSpan within, CancellationToken stop)
    {
        try
        {
            await _process.Ended.WaitAsync(within, _time, stop).ConfigureAwait(false);
            return true;
        }
        catch (TimeoutException)
        {
            return false;
        }
    }

    private async Task<ServerEnd> ByItselfAsync()
    {
        var exitCode = await _process.Ended.ConfigureAwait(false);
        return ServerEnd.ByItself(_options.Models, _command.Environment, exitCode, _process.LastErrors, _wasReady);
    }

    private async Task<ServerEnd> ByForceAsync(string trouble)
    {
        await _process.KillAsync().ConfigureAwait(false);
        return ServerEnd.ByForce(_options.Models, trouble, _process.LastErrors, _wasReady);
    }

    private static string Seconds(TimeSpan time) => FormattableString.Invariant($"{time.TotalSeconds:g} s");
}
