using System.Diagnostics.CodeAnalysis;
using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using Grpc.Net.Client;

namespace Quantra.Client.Transport;

/// <summary>Opens gRPC channels.</summary>
internal static class ChannelFactory
{
    /// <summary>Opens a channel. The first call connects.</summary>
    /// <exception cref="ArgumentException">The authority file has no certificate.</exception>
    /// <exception cref="IOException">The authority file cannot be read.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the channel disposes its handler")]
    public static GrpcChannel Open(ServerAddress address, QuantraClientOptions options) =>
        GrpcChannel.ForAddress(address.Channel, new GrpcChannelOptions
        {
            HttpHandler = CreateHandler(address, options),
            DisposeHttpClient = true,
            LoggerFactory = options.LoggerFactory,
            MaxReceiveMessageSize = options.MaxMessageBytes,
        });

    private static SocketsHttpHandler CreateHandler(ServerAddress address, QuantraClientOptions options)
    {
        var handler = new SocketsHttpHandler
        {
            UseProxy = !address.IsLocal,
            EnableMultipleHttp2Connections = true,
            ConnectTimeout = options.ConnectTimeout,
            KeepAlivePingDelay = options.PingInterval,
            KeepAlivePingTimeout = options.PingTimeout,
            SslOptions = CreateTlsOptions(options),
            ConnectCallback = (context, token) => address.ConnectAsync(context.DnsEndPoint, token),
        };
        options.ConfigureHandler?.Invoke(handler);
        return handler;
    }

    private static SslClientAuthenticationOptions CreateTlsOptions(QuantraClientOptions options) => new()
    {
        CertificateChainPolicy = options.AuthorityFile is { } file ? Trust(file) : null,
        ClientCertificates = options.ClientCertificate is { } certificate ? [certificate] : null,
    };

    /// <summary>Trusts only the authorities of the file.</summary>
    private static X509ChainPolicy Trust(string file)
    {
        // private authorities seldom publish revocation lists
        var policy = new X509ChainPolicy { TrustMode = X509ChainTrustMode.CustomRootTrust, RevocationMode = X509RevocationMode.NoCheck };
        policy.CustomTrustStore.ImportFromPemFile(file);
        return policy.CustomTrustStore.Count > 0
            ? policy
            : throw new ArgumentException($"{file} has no PEM certificate; name the file of the authority, for example the ca.pem that `quantra certs` creates");
    }
}
