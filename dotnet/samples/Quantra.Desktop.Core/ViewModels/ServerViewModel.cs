using Quantra.Client.Hosting;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>The program's own server: where it stands, why, and how to start it again once it has failed.</summary>
public sealed class ServerViewModel : Observable
{
    private readonly QuantraServer _server;
    private QuantraServerStatus _status;

    /// <param name="server">It stays the caller's.</param>
    public ServerViewModel(QuantraServer server)
    {
        ArgumentNullException.ThrowIfNull(server);
        (_server, _status) = (server, server.Status);
        Start = new AsyncCommand(() => _server.StartAsync(), () => HasEnded);
    }

    /// <summary>The server answers; told each time that it does so again.</summary>
    public event EventHandler? BecameReady;

    /// <summary>Where it stands.</summary>
    public QuantraServerState State => _status.State;

    /// <summary>In words.</summary>
    public string Text => _status.State switch
    {
        QuantraServerState.Ready => _status.Restarts == 0 ? "server ready" : $"server ready, started again {_status.Restarts} times",
        QuantraServerState.Starting => "server is starting",
        QuantraServerState.Degraded => "server answers slowly",
        QuantraServerState.Failed => "server has failed",
        _ => "server is stopped",
    };

    /// <summary>Why; "" = nothing is wrong.</summary>
    public string Reason => _status.Error?.Message ?? "";

    /// <summary>Starts it, where it does not run.</summary>
    public AsyncCommand Start { get; }

    private bool HasEnded => State is QuantraServerState.Failed or QuantraServerState.Stopped;

    /// <summary>Follows the server until the token is cancelled.</summary>
    public async Task FollowAsync(CancellationToken cancellationToken = default)
    {
        try
        {
            await foreach (var status in _server.WatchAsync(cancellationToken))
                Show(status);
        }
        catch (OperationCanceledException) when (cancellationToken.IsCancellationRequested)
        {
            // The window is closed.
        }
    }

    private void Show(QuantraServerStatus status)
    {
        var wasReady = State == QuantraServerState.Ready;
        _status = status;
        Tell(nameof(State));
        Tell(nameof(Text));
        Tell(nameof(Reason));
        Start.Refresh();
        if (State == QuantraServerState.Ready && !wasReady)
            BecameReady?.Invoke(this, EventArgs.Empty);
    }
}
