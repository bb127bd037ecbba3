using System.Diagnostics.CodeAnalysis;
using System.Net;
using System.Net.Sockets;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Connects clients to the current port of a server. Connections wait while the server starts.</summary>
/// <param name="getPort">Waits for the port.</param>
internal sealed class ServerConnector(Func<CancellationToken, Task<int>> getPort)
{
    /// <summary>Makes a handler connect to the server, regardless of the requested address.</summary>
    public void Configure(SocketsHttpHandler handler)
    {
        handler.ConnectTimeout = Timeout.InfiniteTimeSpan; // the deadline of each call limits the wait
        handler.ConnectCallback = (_, token) => ConnectAsync(token);
    }

    /// <exception cref="QuantraException">The server has failed or is stopped.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the returned stream owns the socket")]
    private async ValueTask<Stream> ConnectAsync(CancellationToken cancellationToken)
    {
        var port = await getPort(cancellationToken).ConfigureAwait(false);
        var socket = new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        try
        {
            await socket.ConnectAsync(IPAddress.Loopback, port, cancellationToken).ConfigureAwait(false);
            return new NetworkStream(socket, ownsSocket: true);
        }
        catch
        {
            socket.Dispose();
            throw;
        }
    }
}
