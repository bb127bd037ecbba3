using System.Diagnostics.CodeAnalysis;
using System.Net;
using System.Net.Sockets;

namespace Quantra.Client.Transport;

/// <summary>Where a server listens: http, https, or a Unix socket.</summary>
internal sealed class ServerAddress
{
    private const string Unix = "unix";
    private readonly Uri _given;

    /// <summary>Checks an address.</summary>
    /// <param name="address">Such as http://127.0.0.1:50051 or unix:/run/quantra/server.sock.</param>
    /// <exception cref="ArgumentException">No call could use it: in localhost:50051, localhost is the scheme.</exception>
    public ServerAddress(Uri address)
    {
        _given = address;
        if (address.IsAbsoluteUri && address.Scheme is "http" or "https" or Unix)
            return;
        var (text, rest) = (address.OriginalString, address.OriginalString.Split("://")[^1]);
        throw new ArgumentException(
            $"'{text}' begins with neither http:// nor https:// nor unix:; write http://{rest}, or https://{rest} if the server has TLS",
            nameof(address));
    }

    /// <summary>As messages name it.</summary>
    public string Text => IsSocket ? _given.OriginalString : _given.Authority;

    /// <summary>What the channel is told: the host of a Unix socket is of no account.</summary>
    public Uri Channel => IsSocket ? new Uri("http://localhost") : _given;

    /// <summary>Whether it is a file of this machine.</summary>
    public bool IsSocket => _given.Scheme == Unix;

    /// <summary>Whether nobody else can read what is sent there.</summary>
    public bool IsSecret => IsSocket || _given.IsLoopback || _given.Scheme == "https";

    /// <summary>Whether only this machine is concerned, so that no proxy is asked.</summary>
    public bool IsLocal => IsSocket || _given.IsLoopback;

    /// <summary>Connects to the server, or to a proxy on the way to it.</summary>
    /// <param name="next">Where to, unless it is a Unix socket.</param>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <returns>The connection.</returns>
    /// <remarks>
    /// gRPC's own way to connect waits longer and longer after failures, up to two minutes, during which calls fail untried.
    /// </remarks>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the stream that is returned owns the socket")]
    public async ValueTask<Stream> ConnectAsync(DnsEndPoint next, CancellationToken cancellationToken)
    {
        var socket = IsSocket
            ? new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified)
            : new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        try
        {
            await socket.ConnectAsync(IsSocket ? new UnixDomainSocketEndPoint(_given.LocalPath) : next, cancellationToken).ConfigureAwait(false);
            return new NetworkStream(socket, ownsSocket: true);
        }
        catch
        {
            socket.Dispose();
            throw;
        }
    }
}
