using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>One process of a server, from start to end.</summary>
internal sealed class ServerProcess : IAsyncDisposable
{
    private readonly QuantraServerOptions _options;
    private readonly PythonCommand _command;
    private readonly ServerLog _log;
    private readonly TimeProvider _time;
    private readonly PythonProcess _process;
    private readonly TaskCompletionSource<ReadyLine?> _ready = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly Task _reading;
    private bool _wasReady;

    /// <summary>Starts the process.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the process cannot be started.</exception>
    public ServerProcess(QuantraServerOptions options, PythonCommand command, ServerLog log, TimeProvider time)
    {
        (_options, _command, _log, _time) = (options, command, log, time);
        _process = PythonProcess.Start(command, log.Lines.Log, time);
        _reading = ReadOutputAsync();
    }

    /// <summary>Waits until the process ends, hangs and is killed, or is stopped on request.</summary>
    /// <param name="report">Called when the server is ready, when it becomes unhealthy (with the error), and when it recovers.</param>
    /// <param name="stop">Stops the process.</param>
    /// <param name="forceStop">Cuts the grace time short.</param>
    public async Task<ServerExit> RunAsync(Action<ReadyLine, QuantraError?> report, CancellationToken stop, CancellationToken forceStop)
    {
        try
        {
            var ready = await _ready.Task.WaitAsync(_options.StartTimeout, _time, stop).ConfigureAwait(false);
            if (ready is null)
                return await ExitAsync().ConfigureAwait(false);
            _wasReady = true;
            report(ready, null);
            return await WatchAsync(ready, report, stop).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            return await KillAsync($"it was not ready within {FormatSeconds(_options.StartTimeout)}").ConfigureAwait(false);
        }
        catch (OperationCanceledException) when (stop.IsCancellationRequested)
        {
            // a server that is not ready has no calls to finish
            await _process.StopAsync(_wasReady ? _options.GraceTime : TimeSpan.Zero, forceStop).ConfigureAwait(false);
            return ServerExit.Stopped(_wasReady);
        }
    }

    /// <summary>Kills the process if it still runs.</summary>
    public async ValueTask DisposeAsync()
    {
        await _process.DisposeAsync().ConfigureAwait(false);
        await _reading.ConfigureAwait(false);
    }

    /// <summary>Reads standard output to its end, looking for the ready line.</summary>
    private async Task ReadOutputAsync()
    {
        await foreach (var line in _process.Output.ReadAllAsync(CancellationToken.None).ConfigureAwait(false))
        {
            _log.OutputLine(line);
            if (ReadyLine.Parse(line) is { } ready)
                _ready.TrySetResult(ready);
        }

        _ready.TrySetResult(null);
    }

    /// <summary>Probes the server until the process ends or has missed too many probes.</summary>
    private async Task<ServerExit> WatchAsync(ReadyLine ready, Action<ReadyLine, QuantraError?> report, CancellationToken stop)
    {
        using var probe = new ServerProbe(ready.Port, _options.ProbeTimeout, _time);
        string? problem = null;
        for (var missed = 0; !await HasEndedAsync(_options.ProbeInterval, stop).ConfigureAwait(false);)
        {
            var result = await probe.CheckAsync(stop).ConfigureAwait(false);
            missed = result.IsAnswered ? 0 : missed + 1;
            if (missed == _options.MaxMissedProbes)
                return await KillAsync(result.Problem!).ConfigureAwait(false);
            if (result.Problem == problem)
                continue;
            problem = result.Problem;
            report(ready, problem is null ? null : ServerExit.Unhealthy(_options.Models, problem));
        }

        return await ExitAsync().ConfigureAwait(false);
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

    private async Task<ServerExit> ExitAsync()
    {
        var exitCode = await _process.Ended.ConfigureAwait(false);
        return ServerExit.Unexpected(_options.Models, _command.Environment, exitCode, _process.LastErrors, _wasReady);
    }

    private async Task<ServerExit> KillAsync(string problem)
    {
        await _process.KillAsync().ConfigureAwait(false);
        return ServerExit.Killed(_options.Models, problem, _process.LastErrors, _wasReady);
    }

    private static string FormatSeconds(TimeSpan time) => FormattableString.Invariant($"{time.TotalSeconds:g} s");
}
