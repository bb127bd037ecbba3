using System.Net;
using System.Net.Sockets;

namespace Quantra.Client.Tests;

/// <summary>A TCP relay to a local server that can drop traffic silently.</summary>
internal sealed class TcpRelay : IAsyncDisposable
{
    private readonly TcpListener _listener = new(IPAddress.Loopback, 0);
    private readonly List<TcpClient> _sockets = [];
    private readonly List<Task> _working = [];
    private readonly int _port;
    private CancellationTokenSource _silence = new();
    private int _bytesOfFirst;
    private long _swallowed;

    /// <param name="server">Address of the local server.</param>
    /// <param name="bytesOfFirst">Number of response bytes after which the first connection breaks.</param>
    public TcpRelay(Uri server, int bytesOfFirst = int.MaxValue)
    {
        (_port, _bytesOfFirst) = (server.Port, bytesOfFirst);
        _listener.Start();
        _working.Add(AcceptAsync());
    }

    public Uri Address => new($"http://{_listener.LocalEndpoint}");

    /// <summary>Number of dropped bytes.</summary>
    public long Swallowed => Interlocked.Read(ref _swallowed);

    /// <summary>Drops all traffic of the existing connections without closing them. New ones work.</summary>
    public void FallSilent()
    {
        _silence.Cancel();
        _silence = new CancellationTokenSource();
    }

    /// <summary>Closes the existing connections. New ones work.</summary>
    public void Break()
    {
        lock (_sockets)
        {
            _sockets.ForEach(socket => socket.Dispose());
            _sockets.Clear();
        }
    }

    public async ValueTask DisposeAsync()
    {
        _listener.Dispose();
        await _working[0];
        Break();
        await Task.WhenAll(_working);
        _silence.Dispose();
    }

    private async Task AcceptAsync()
    {
        try
        {
            while (true)
            {
                var caller = await _listener.AcceptTcpClientAsync();
                var server = new TcpClient("127.0.0.1", _port);
                lock (_sockets)
                    _sockets.AddRange([caller, server]);
                _working.Add(PassOnAsync(caller, server, int.MaxValue, _silence.Token));
                _working.Add(PassOnAsync(server, caller, _bytesOfFirst, _silence.Token));
                _bytesOfFirst = int.MaxValue;
            }
        }
        catch (SocketException)
        {
            // the listener was disposed
        }
    }

    private async Task PassOnAsync(TcpClient from, TcpClient to, int most, CancellationToken silence)
    {
        var buffer = new byte[1 << 12];
        try
        {
            while (most > 0 && await from.GetStream().ReadAsync(buffer, CancellationToken.None) is > 0 and var count)
            {
                if (silence.IsCancellationRequested)
                    Interlocked.Add(ref _swallowed, count);
                else
                    await to.GetStream().WriteAsync(buffer.AsMemory(0, count), CancellationToken.None);
                most -= most == int.MaxValue ? 0 : count;
            }

            if (most <= 0)
                to.Close();
        }
        catch (Exception failure) when (failure is IOException or ObjectDisposedException or InvalidOperationException)
        {
            // one end is closed
        }
    }
}
