using System.Diagnostics.CodeAnalysis;
using System.Net;
using System.Net.Sockets;

namespace Quantra.Client.Transport;

/// <summary>Address of a server: http, https or a Unix socket.</summary>
internal sealed class ServerAddress
{
    private const string Unix = "unix";
    private readonly Uri _address;

    /// <exception cref="ArgumentException">The scheme is not supported. In localhost:50051, for example, localhost is the scheme.</exception>
    public ServerAddress(Uri address)
    {
        _address = address;
        if (address.IsAbsoluteUri && address.Scheme is "http" or "https" or Unix)
            return;
        var (text, rest) = (address.OriginalString, address.OriginalString.Split("://")[^1]);
        throw new ArgumentException(
            $"'{text}' begins with neither http:// nor https:// nor unix:; write http://{rest}, or https://{rest} if the server uses TLS",
            nameof(address));
    }

    /// <summary>The address in messages.</summary>
    public string Text => IsSocket ? _address.OriginalString : _address.Authority;

    /// <summary>The address of the channel. Its host does not matter for a Unix socket.</summary>
    public Uri Channel => IsSocket ? new Uri("http://localhost") : _address;

    public bool IsSocket => _address.Scheme == Unix;

    /// <summary>Whether traffic to the server is encrypted or stays on this machine.</summary>
    public bool IsPrivate => IsSocket || _address.IsLoopback || _address.Scheme == "https";

    /// <summary>Whether the server is on this machine, so that no proxy is used.</summary>
    public bool IsLocal => IsSocket || _address.IsLoopback;

    /// <summary>Connects to the server, or to a proxy on the way to it.</summary>
    /// <param name="next">The next hop, ignored for a Unix socket.</param>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <returns>The connection.</returns>
    /// <remarks>gRPC's own connecting backs off for up to two minutes after failures, and calls fail meanwhile without an attempt.</remarks>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the returned stream owns the socket")]
    public async ValueTask<Stream> ConnectAsync(DnsEndPoint next, CancellationToken cancellationToken)
    {
        var socket = IsSocket
            ? new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified)
            : new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        try
        {
            await socket.ConnectAsync(IsSocket ? new UnixDomainSocketEndPoint(_address.LocalPath) : next, cancellationToken).ConfigureAwait(false);
            return new NetworkStream(socket, ownsSocket: true);
        }
        catch
        {
            socket.Dispose();
            throw;
        }
    }
}
