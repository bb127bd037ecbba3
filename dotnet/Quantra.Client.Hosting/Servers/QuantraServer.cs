using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Quantra.Client.Hosting.Processes;
using Quantra.Client.Hosting.Servers;

namespace Quantra.Client.Hosting;

/// <summary>
/// A Quantra server in a child process. It is started, supervised and stopped by this program, and ends with it even after a crash. Only
/// this program can call it. In a host, use <c>AddQuantraServer</c>.
/// </summary>
/// <remarks>Thread-safe.</remarks>
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
    /// <summary>The address that clients use. The port of the current process is substituted when they connect.</summary>
    private static readonly Uri Address = new("http://localhost");

    private readonly QuantraServerOptions _options;
    private readonly ServerLog _log;
    private readonly TimeProvider _time;
    private readonly ServerTokens _tokens = ServerTokens.Create();
    private readonly ObservableValue<QuantraServerStatus> _status = new(new() { State = QuantraServerState.Stopped });
    private readonly object _gate = new();
    private ServerSupervisor? _supervisor;
    private bool _isDisposed;

    /// <summary>Creates a server without starting it.</summary>
    /// <param name="options">Options, read at each start.</param>
    /// <param name="loggerFactory">
    /// Logs the process under the name of this class, and the server's own log under "Quantra.Server"; null = no logs.
    /// </param>
    /// <param name="timeProvider">Clock for all waits; null = the system's.</param>
    /// <exception cref="ArgumentException">The options are invalid.</exception>
    public QuantraServer(QuantraServerOptions options, ILoggerFactory? loggerFactory = null, TimeProvider? timeProvider = null)
    {
        ArgumentNullException.ThrowIfNull(options);
        if (ServerCommand.Validate(options) is [var problem, ..])
            throw new ArgumentException(problem, nameof(options));
        _options = options;
        _log = new ServerLog(loggerFactory ?? NullLoggerFactory.Instance);
        _time = timeProvider ?? TimeProvider.System;
    }

    /// <summary>Current status.</summary>
    public QuantraServerStatus Status => _status.Value;

    /// <summary>Whether the options allow admin calls.</summary>
    internal bool AcceptsAdminCalls => _options.AcceptsAdminCalls;

    /// <summary>Starts the server and its supervision. Does nothing if the server is running or starting.</summary>
    /// <param name="cancellationToken">Checked before the start only.</param>
    /// <returns>
    /// A completed task. <see cref="WaitUntilReadyAsync"/> waits for the server and throws if it fails. Calls wait for it too. A failed server
    /// can be started again.
    /// </returns>
    /// <exception cref="ObjectDisposedException">The server is disposed.</exception>
    public Task StartAsync(CancellationToken cancellationToken = default)
    {
        cancellationToken.ThrowIfCancellationRequested();
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_isDisposed, this);
            if (_supervisor is { IsStopping: false } && Status.State is not (QuantraServerState.Stopped or QuantraServerState.Failed))
                return Task.CompletedTask;
            var previous = _supervisor?.Ended ?? Task.CompletedTask;
            _supervisor = new ServerSupervisor(_options, _tokens, _log, _time, Publish);
            _status.Publish(new QuantraServerStatus { State = QuantraServerState.Starting });
            _supervisor.Start(after: previous);
        }

        return Task.CompletedTask;
    }

    /// <summary>
    /// Stops the server. Running calls may finish within <see cref="QuantraServerOptions.GraceTime"/>; then the processes are killed. The
    /// server can be started again.
    /// </summary>
    /// <param name="cancellationToken">Cuts the grace time short.</param>
    /// <returns>A task that completes when the processes have ended.</returns>
    public async Task StopAsync(CancellationToken cancellationToken = default)
    {
        ServerSupervisor? stopping;
        lock (_gate)
        {
            stopping = _supervisor;
            stopping?.MarkStopping();
        }

        if (stopping is null)
            return;
        await stopping.StopAsync(cancellationToken).ConfigureAwait(false);
        lock (_gate)
        {
            if (_supervisor == stopping && Status.State != QuantraServerState.Stopped)
                _status.Publish(new QuantraServerStatus { State = QuantraServerState.Stopped });
        }
    }

    /// <summary>Waits until the server is ready.</summary>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <returns>A task that completes when the server is ready.</returns>
    /// <exception cref="QuantraException">The server has failed, was stopped, or was never started.</exception>
    public Task WaitUntilReadyAsync(CancellationToken cancellationToken = default) =>
        WaitForAsync(status => status.State == QuantraServerState.Ready, cancellationToken);

    /// <summary>Yields the status and its changes, for a user interface or a log.</summary>
    /// <param name="cancellationToken">Ends the enumeration, as disposing the server does.</param>
    /// <returns>The current status, then every change in order.</returns>
    public IAsyncEnumerable<QuantraServerStatus> WatchAsync(CancellationToken cancellationToken = default) =>
        _status.FollowAsync(cancellationToken);

    /// <summary>
    /// Creates a client for this server. Calls wait within <see cref="QuantraClientOptions.Timeout"/> until the server is ready. Calls that a
    /// restart interrupts are repeated.
    /// </summary>
    /// <param name="options">Options of the client; null = the defaults. The token is replaced by the server's.</param>
    /// <returns>A client. Dispose it before the server.</returns>
    public QuantraClient OpenClient(QuantraClientOptions? options = null) => new(Address, ToOwn(options, _tokens.Calls, GetPortAsync));

    /// <summary>
    /// Creates a client for the admin calls of this server. Calls wait within <see cref="QuantraClientOptions.Timeout"/> until the server is
    /// ready. They are never repeated.
    /// </summary>
    /// <param name="options">Options of the client; null = the defaults. The token is replaced by the server's.</param>
    /// <returns>A client. Dispose it before the server.</returns>
    /// <exception cref="InvalidOperationException">The server does not accept admin calls.</exception>
    public ModelAdminClient OpenAdminClient(QuantraClientOptions? options = null) => AcceptsAdminCalls
        ? new(Address, ToOwn(options, _tokens.Admin, GetAdminPortAsync))
        : throw new InvalidOperationException("the server does not accept admin calls; set AcceptsAdminCalls of its options");

    /// <summary>Stops the server for good, like <see cref="StopAsync"/>.</summary>
    /// <returns>A task that completes when the processes have ended.</returns>
    public async ValueTask DisposeAsync()
    {
        lock (_gate)
            _isDisposed = true;
        await StopAsync(CancellationToken.None).ConfigureAwait(false);
        _status.Complete();
    }

    private static QuantraClientOptions ToOwn(QuantraClientOptions? options, string token, Func<CancellationToken, Task<int>> getPort)
    {
        var clientOptions = options ?? new QuantraClientOptions();
        return clientOptions with
        {
            Token = _ => new ValueTask<string?>(token),
            ConfigureHandler = handler =>
            {
                clientOptions.ConfigureHandler?.Invoke(handler);
                new ServerConnector(getPort).Configure(handler);
            },
        };
    }

    private static QuantraException ToException(QuantraServerStatus status)
    {
        const string NotStarted = "the server is stopped; start it or its host";
        return ProcessError.ToException(status.Error ?? new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, NotStarted));
    }

    /// <summary>Waits for the server's port.</summary>
    /// <exception cref="QuantraException">The server has failed, was stopped, or was never started.</exception>
    private async Task<int> GetPortAsync(CancellationToken cancellationToken) =>
        (await WaitForAsync(status => status.Port is not null, cancellationToken).ConfigureAwait(false)).Port!.Value;

    /// <summary>Waits for the port of the admin calls.</summary>
    /// <exception cref="QuantraException">The server has failed, was stopped, or was never started.</exception>
    private async Task<int> GetAdminPortAsync(CancellationToken cancellationToken) =>
        (await WaitForAsync(status => status.AdminPort is not null, cancellationToken).ConfigureAwait(false)).AdminPort!.Value;

    private async Task<QuantraServerStatus> WaitForAsync(Func<QuantraServerStatus, bool> condition, CancellationToken cancellationToken)
    {
        await foreach (var status in _status.FollowAsync(cancellationToken).ConfigureAwait(false))
        {
            if (condition(status))
                return status;
            if (status.State is QuantraServerState.Failed or QuantraServerState.Stopped)
                throw ToException(status);
        }

        throw new ObjectDisposedException(nameof(QuantraServer));
    }

    /// <summary>Publishes a status, unless the supervisor is stopping or was replaced.</summary>
    private void Publish(ServerSupervisor supervisor, QuantraServerStatus status)
    {
        lock (_gate)
        {
            if (_supervisor == supervisor && !supervisor.IsStopping)
                _status.Publish(status);
        }
    }
}
