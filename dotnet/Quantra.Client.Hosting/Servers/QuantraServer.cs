using System.Security.Cryptography;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Quantra.Client.Hosting.Processes;
using Quantra.Client.Hosting.Servers;

namespace Quantra.Client.Hosting;

/// <summary>
/// A Quantra server of the program's own: a process that is started, kept running and ended with the program, however that ends. Only
/// this program can call it. In a host, <c>AddQuantraServer</c> does all of it.
/// </summary>
/// <remarks>Safe to use from many threads.</remarks>
/// <example>
/// <code>
/// await using var server = new QuantraServer(new QuantraServerOptions { Models = "models" });
/// await server.StartAsync();
/// await using var client = server.OpenClient();
/// Console.WriteLine(await client.PredictAsync(new PredictionRequest("stock", bars)));
/// </code>
/// </example>
public sealed class QuantraServer : IAsyncDisposable
{
    /// <summary>Where its clients believe that it is: one address, whatever the port of the present process.</summary>
    private static readonly Uri Address = new("http://localhost");

    private readonly QuantraServerOptions _options;
    private readonly ServerLog _log;
    private readonly TimeProvider _time;
    private readonly string _token = Convert.ToHexString(RandomNumberGenerator.GetBytes(32));
    private readonly Published<QuantraServerStatus> _status = new(new() { State = QuantraServerState.Stopped });
    private readonly object _gate = new();
    private Supervision? _supervision;
    private bool _isDisposed;

    /// <summary>Makes a server that is not started yet.</summary>
    /// <param name="options">Read whenever it starts.</param>
    /// <param name="loggerFactory">
    /// Takes what happens to the process under the name of this class, and the server's own log as "Quantra.Server"; null = nothing.
    /// </param>
    /// <param name="timeProvider">Of all waits; null = the system's.</param>
    /// <exception cref="ArgumentException">The options cannot be used.</exception>
    public QuantraServer(QuantraServerOptions options, ILoggerFactory? loggerFactory = null, TimeProvider? timeProvider = null)
    {
        ArgumentNullException.ThrowIfNull(options);
        if (ServerCommand.Problems(options) is [var problem, ..])
            throw new ArgumentException(problem, nameof(options));
        _options = options;
        _log = new ServerLog(loggerFactory ?? NullLoggerFactory.Instance);
        _time = timeProvider ?? TimeProvider.System;
    }

    /// <summary>Where it stands at present.</summary>
    public QuantraServerStatus Status => _status.Value;

    /// <summary>Begins to start the server, and to keep it running; one that runs, or is about to, is left alone.</summary>
    /// <param name="cancellationToken">Only looked at before anything is begun.</param>
    /// <returns>
    /// Completes at once: <see cref="WaitUntilReadyAsync"/> waits for the server and tells why it failed, and calls wait by themselves.
    /// A server that has failed may be started again.
    /// </returns>
    /// <exception cref="ObjectDisposedException">It was disposed.</exception>
    public Task StartAsync(CancellationToken cancellationToken = default)
    {
        cancellationToken.ThrowIfCancellationRequested();
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_isDisposed, this);
            if (_supervision is { IsStopping: false } && Status.State is not (QuantraServerState.Stopped or QuantraServerState.Failed))
                return Task.CompletedTask;
            var before = _supervision?.Ended ?? Task.CompletedTask;
            _supervision = new Supervision(_options, _token, _log, _time, Publish);
            _status.Publish(new QuantraServerStatus { State = QuantraServerState.Starting });
            _supervision.Begin(after: before);
        }

        return Task.CompletedTask;
    }

    /// <summary>
    /// Ends the server: calls under way may finish within <see cref="QuantraServerOptions.GraceTime"/>, then its processes are ended by
    /// force. It may be started again.
    /// </summary>
    /// <param name="cancellationToken">Cuts the grace time short.</param>
    /// <returns>A task that completes when its processes have ended.</returns>
    public async Task StopAsync(CancellationToken cancellationToken = default)
    {
        Supervision? ending;
        lock (_gate)
        {
            ending = _supervision;
            ending?.AskToStop();
        }

        if (ending is null)
            return;
        await ending.StopAsync(cancellationToken).ConfigureAwait(false);
        lock (_gate)
        {
            if (_supervision == ending && Status.State != QuantraServerState.Stopped)
                _status.Publish(new QuantraServerStatus { State = QuantraServerState.Stopped });
        }
    }

    /// <summary>Waits until the server is ready; at once if it is.</summary>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <returns>A task that completes when the server is ready.</returns>
    /// <exception cref="QuantraException">The server has failed, was stopped, or was never started; the message says why.</exception>
    public Task WaitUntilReadyAsync(CancellationToken cancellationToken = default) =>
        WhenAsync(status => status.State == QuantraServerState.Ready, cancellationToken);

    /// <summary>Follows where the server stands, for a user interface or a log.</summary>
    /// <param name="cancellationToken">Ends it, as does disposing the server.</param>
    /// <returns>The present status, and then every change in order, however late it is read.</returns>
    public IAsyncEnumerable<QuantraServerStatus> WatchAsync(CancellationToken cancellationToken = default) =>
        _status.FollowAsync(cancellationToken);

    /// <summary>
    /// Opens a client of this server. It follows the server through restarts: calls wait until the server is ready, within their own
    /// <see cref="QuantraClientOptions.Timeout"/>, and those that a restart broke off are asked again.
    /// </summary>
    /// <param name="options">Of the client; null = as they are. Its token is the server's own.</param>
    /// <returns>A client, to be disposed before the server.</returns>
    public QuantraClient OpenClient(QuantraClientOptions? options = null)
    {
        var given = options ?? new QuantraClientOptions();
        return new QuantraClient(Address, given with
        {
            Token = _ => new ValueTask<string?>(_token),
            ConfigureHandler = handler =>
            {
                given.ConfigureHandler?.Invoke(handler);
                new ServerConnection(this).Configure(handler);
            },
        });
    }

    /// <summary>Ends the server as <see cref="StopAsync"/> does, for good.</summary>
    /// <returns>A task that completes when its processes have ended.</returns>
    public async ValueTask DisposeAsync()
    {
        lock (_gate)
            _isDisposed = true;
        await StopAsync(CancellationToken.None).ConfigureAwait(false);
        _status.End();
    }

    /// <summary>Where the server answers, once it does.</summary>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <exception cref="QuantraException">The server has failed, was stopped, or was never started.</exception>
    internal async Task<int> PortAsync(CancellationToken cancellationToken) =>
        (await WhenAsync(status => status.Port is not null, cancellationToken).ConfigureAwait(false)).Port!.Value;

    private static QuantraException Refusal(QuantraServerStatus status)
    {
        const string NotStarted = "the server is stopped; start it, or the host that it belongs to";
        return ProcessError.ToException(status.Error ?? new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, NotStarted));
    }

    private async Task<QuantraServerStatus> WhenAsync(Func<QuantraServerStatus, bool> isEnough, CancellationToken cancellationToken)
    {
        await foreach (var status in _status.FollowAsync(cancellationToken).ConfigureAwait(false))
        {
            if (isEnough(status))
                return status;
            if (status.State is QuantraServerState.Failed or QuantraServerState.Stopped)
                throw Refusal(status);
        }

        throw new ObjectDisposedException(nameof(QuantraServer));
    }

    /// <summary>Publishes what the present supervision tells, until it is asked to end.</summary>
    private void Publish(Supervision by, QuantraServerStatus status)
    {
        lock (_gate)
        {
            if (_supervision == by && !by.IsStopping)
                _status.Publish(status);
        }
    }
}
