using System.Diagnostics.CodeAnalysis;
using System.Net;
using System.Net.Sockets;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Connects clients to wherever a server answers at the time, and lets them wait while it starts.</summary>
internal sealed class ServerConnection(QuantraServer server)
{
    /// <summary>Has a handler connect to the server, whatever the address that it is asked for.</summary>
    public void Configure(SocketsHttpHandler handler)
    {
        handler.ConnectTimeout = Timeout.InfiniteTimeSpan; // each call waits as long as its own deadline allows
        handler.ConnectCallback = (_, cancelled) => ConnectAsync(cancelled);
    }

    /// <exception cref="QuantraException">The server has failed, or is stopped.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the stream that is returned owns the socket")]
    private async ValueTask<Stream> ConnectAsync(CancellationToken cancellationToken)
    {
        var port = await server.PortAsync(cancellationToken).ConfigureAwait(false);
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
