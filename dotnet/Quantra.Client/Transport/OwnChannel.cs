using System.Diagnostics.CodeAnalysis;
using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using Grpc.Net.Client;

namespace Quantra.Client.Transport;

/// <summary>The channel that a client opens for itself.</summary>
internal static class OwnChannel
{
    /// <summary>Opens a channel; nothing is sent before the first call.</summary>
    /// <exception cref="ArgumentException">The authorities' file holds no certificate.</exception>
    /// <exception cref="IOException">It cannot be read.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the channel disposes its handler")]
    public static GrpcChannel Open(ServerAddress address, QuantraClientOptions options) =>
        GrpcChannel.ForAddress(address.Channel, new GrpcChannelOptions
        {
            HttpHandler = Handler(address, options),
            DisposeHttpClient = true,
            LoggerFactory = options.LoggerFactory,
            MaxReceiveMessageSize = options.MaxMessageBytes,
        });

    private static SocketsHttpHandler Handler(ServerAddress address, QuantraClientOptions options)
    {
        var handler = new SocketsHttpHandler
        {
            UseProxy = !address.IsLocal,
            EnableMultipleHttp2Connections = true,
            ConnectTimeout = options.ConnectTimeout,
            KeepAlivePingDelay = options.PingInterval,
            KeepAlivePingTimeout = options.PingTimeout,
            SslOptions = Tls(options),
            ConnectCallback = (asked, cancelled) => address.ConnectAsync(asked.DnsEndPoint, cancelled),
        };
        options.ConfigureHandler?.Invoke(handler);
        return handler;
    }

    private static SslClientAuthenticationOptions Tls(QuantraClientOptions options) => new()
    {
        CertificateChainPolicy = options.AuthorityFile is { } file ? Trust(file) : null,
        ClientCertificates = options.ClientCertificate is { } certificate ? [certificate] : null,
    };

    /// <summary>Trusts the authorities of the file and no others.</summary>
    private static X509ChainPolicy Trust(string file)
    {
        // Authorities of one's own seldom publish what they revoked.
        var policy = new X509ChainPolicy { TrustMode = X509ChainTrustMode.CustomRootTrust, RevocationMode = X509RevocationMode.NoCheck };
        policy.CustomTrustStore.ImportFromPemFile(file);
        return policy.CustomTrustStore.Count > 0
            ? policy
            : throw new ArgumentException($"{file} holds no certificate in PEM form; name the authority's, such as the ca.pem that `quantra certs` makes");
    }
}
