using Quantra.Client.Hosting;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>Status of the server, and a command to restart it after a failure.</summary>
public sealed class ServerViewModel : ObservableObject
{
    private readonly QuantraServer _server;
    private QuantraServerStatus _status;

    /// <param name="server">The server. The caller disposes it.</param>
    public ServerViewModel(QuantraServer server)
    {
        ArgumentNullException.ThrowIfNull(server);
        (_server, _status) = (server, server.Status);
        Start = new AsyncCommand(() => _server.StartAsync(), () => HasEnded);
    }

    /// <summary>Raised each time the server becomes ready.</summary>
    public event EventHandler? BecameReady;

    public QuantraServerState State => _status.State;

    /// <summary>The state in words.</summary>
    public string Text => _status.State switch
    {
        QuantraServerState.Ready => _status.Restarts == 0 ? "server ready" : $"server ready, restarted {_status.Restarts} times",
        QuantraServerState.Starting => "server is starting",
        QuantraServerState.Degraded => "server answers slowly",
        QuantraServerState.Failed => "server has failed",
        _ => "server is stopped",
    };

    /// <summary>The reason of the state; "" = no problem.</summary>
    public string Reason => _status.Error?.Message ?? "";

    /// <summary>Starts the server if it is not running.</summary>
    public AsyncCommand Start { get; }

    private bool HasEnded => State is QuantraServerState.Failed or QuantraServerState.Stopped;

    /// <summary>Follows the server's status until the token is cancelled.</summary>
    public async Task FollowAsync(CancellationToken cancellationToken = default)
    {
        try
        {
            await foreach (var status in _server.WatchAsync(cancellationToken))
                Show(status);
        }
        catch (OperationCanceledException) when (cancellationToken.IsCancellationRequested)
        {
            // the window was closed
        }
    }

    private void Show(QuantraServerStatus status)
    {
        var wasReady = State == QuantraServerState.Ready;
        _status = status;
        OnPropertyChanged(nameof(State));
        OnPropertyChanged(nameof(Text));
        OnPropertyChanged(nameof(Reason));
        Start.Refresh();
        if (State == QuantraServerState.Ready && !wasReady)
            BecameReady?.Invoke(this, EventArgs.Empty);
    }
}
