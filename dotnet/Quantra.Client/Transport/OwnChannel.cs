using System.Diagnostics.CodeAnalysis;
using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using Grpc.Core;
using Grpc.Net.Client;
using Grpc.Net.Client.Configuration;

namespace Quantra.Client.Transport;

/// <summary>The channel that a client opens for itself.</summary>
internal static class OwnChannel
{
    private const string Service = "quantra.v1.PredictionService";

    /// <summary>Calls that change nothing and whose requests are whole before they are sent.</summary>
    private static readonly string[] Repeatable = ["ListModels", "GetModel", "Predict", "Explain", "ExplainGlobal"];

    /// <summary>Largest request that is tried again: what a server takes; larger ones would be refused time and again.</summary>
    private const int MostRepeatedBytes = (16 << 20) + 1024;

    /// <summary>What calls that wait to be tried again may hold together; beyond it they are tried no more.</summary>
    private const int RetryBytes = 256 << 20;

    /// <summary>Opens a channel; nothing is sent before the first call.</summary>
    /// <exception cref="ArgumentException">The authorities' file holds no certificate.</exception>
    /// <exception cref="IOException">It cannot be read.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the channel disposes its handler")]
    public static GrpcChannel Open(ServerAddress address, QuantraClientOptions options) =>
        GrpcChannel.ForAddress(address.Channel, new GrpcChannelOptions
        {
            HttpHandler = new AttemptCounter(Handler(address, options)),
            DisposeHttpClient = true,
            LoggerFactory = options.LoggerFactory,
            MaxReceiveMessageSize = options.MaxMessageBytes,
            MaxRetryAttempts = options.MaxAttempts,
            MaxRetryBufferPerCallSize = MostRepeatedBytes,
            MaxRetryBufferSize = RetryBytes,
            ServiceConfig = options.MaxAttempts > 1 ? Retries(options.MaxAttempts) : null,
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

    /// <summary>The server may set the wait itself, or forbid another attempt, which goes before this.</summary>
    private static ServiceConfig Retries(int attempts)
    {
        var method = new MethodConfig
        {
            RetryPolicy = new RetryPolicy
            {
                MaxAttempts = attempts,
                InitialBackoff = TimeSpan.FromSeconds(0.1),
                MaxBackoff = TimeSpan.FromSeconds(0.5),
                BackoffMultiplier = 2,
                RetryableStatusCodes = { StatusCode.Unavailable, StatusCode.ResourceExhausted },
            },
        };
        foreach (var name in Repeatable)
            method.Names.Add(new MethodName { Service = Service, Method = name });
        return new ServiceConfig { MethodConfigs = { method } };
    }
}
