using System.Net;
using System.Net.Security;
using System.Net.Sockets;
using System.Security.Cryptography.X509Certificates;
using Grpc.Core;
using Grpc.Net.Client;

namespace Quantra.Client.Tests;

/// <summary>Caller-owned channels to servers with TLS and tokens.</summary>
public sealed class SecureChannelTests(PredictorFixture fixture, SecureServers servers) : IClassFixture<SecureServers>
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private string Address => $"https://127.0.0.1:{servers.Port}";

    private string MutualAddress => $"https://127.0.0.1:{servers.MutualPort}";

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(fixture.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public async Task A_known_token_gets_a_forecast_over_TLS()
    {
        using var channel = Channel(Address, SecureServers.Predicts, Trust());
        Assert.Equal(fixture.Expected.Of("one").Bits("values"), await ForecastAsync(channel));
    }

    [Fact]
    public async Task Without_a_known_token_a_call_is_UNAUTHENTICATED()
    {
        foreach (var token in (string[])["", SecureServers.Predicts + "x"])
        {
            using var channel = Channel(Address, token, Trust());
            var failure = await RefusalAsync(channel);
            Assert.Equal((QuantraStatus.Unauthenticated, QuantraReason.Unauthenticated), (failure.Code, failure.Reason));
        }
    }

    [Fact]
    public async Task A_token_without_the_role_is_PERMISSION_DENIED()
    {
        using var channel = Channel(Address, SecureServers.Explains, Trust());
        var failure = await RefusalAsync(channel);
        Assert.Equal((QuantraStatus.PermissionDenied, QuantraReason.PermissionDenied), (failure.Code, failure.Reason));
        await using var client = new QuantraClient(channel, new QuantraClientOptions());
        Assert.NotEmpty((await client.ExplainAsync(new ExplanationRequest(Request, 5), Token)).RowNames);
    }

    [Fact]
    public async Task The_token_is_requested_for_each_call()
    {
        var token = SecureServers.Explains;
        using var channel = Channel(Address, () => token, Trust());
        await RefusalAsync(channel);
        token = SecureServers.Predicts;
        Assert.NotEmpty(await ForecastAsync(channel));
    }

    [Fact]
    public async Task A_client_certificate_gets_a_forecast()
    {
        using var read = X509Certificate2.CreateFromPemFile(servers.ClientCertificate, servers.ClientKey);
        // Reload the certificate, because Windows does not present one whose key is only in memory.
        using var certificate = X509CertificateLoader.LoadPkcs12(read.Export(X509ContentType.Pkcs12), null);
        var shown = Trust();
        shown.ClientCertificates = [certificate];
        using var channel = Channel(MutualAddress, SecureServers.Predicts, shown);
        Assert.Equal(fixture.Expected.Of("one").Bits("values"), await ForecastAsync(channel));
    }

    [Fact]
    public async Task A_missing_client_certificate_is_reported()
    {
        using var channel = Channel(MutualAddress, SecureServers.Predicts, Trust());
        await AssertUnavailableAsync(channel, "--tls-client-ca");
    }

    [Fact]
    public async Task Plain_text_to_a_TLS_server_is_reported()
    {
        using var channel = GrpcChannel.ForAddress($"http://127.0.0.1:{servers.Port}");
        await AssertUnavailableAsync(channel, "write https://");
    }

    [Fact]
    public async Task TLS_to_a_plain_text_server_is_reported()
    {
        using var channel = Channel($"https://{fixture.Address.Authority}", SecureServers.Predicts, Trust());
        await AssertUnavailableAsync(channel, "without TLS; use http://");
    }

    [Fact]
    public async Task An_untrusted_server_certificate_is_reported()
    {
        using var channel = Channel(Address, SecureServers.Predicts, new SslClientAuthenticationOptions());
        await AssertUnavailableAsync(channel, "no trusted authority signed its certificate");
    }

    [Fact]
    public async Task A_certificate_for_another_host_name_is_reported()
    {
        using var redirected = new SocketsHttpHandler
        {
            SslOptions = Trust(),
            UseProxy = false,
            ConnectCallback = async (_, cancelled) =>
            {
                var socket = new Socket(SocketType.Stream, ProtocolType.Tcp);
                await socket.ConnectAsync(IPAddress.Loopback, servers.Port, cancelled);
                return new NetworkStream(socket, ownsSocket: true);
            },
        };
        using var channel = GrpcChannel.ForAddress("https://elsewhere.example", new GrpcChannelOptions { HttpHandler = redirected });
        await AssertUnavailableAsync(channel, "its certificate is for other host names");
    }

    [Fact]
    public void Call_credentials_are_not_sent_unencrypted() =>
        Assert.Throws<InvalidOperationException>(() => Channel($"http://127.0.0.1:{servers.Port}", SecureServers.Predicts, Trust()));

    /// <summary>TLS options that trust only the servers' authority.</summary>
    private SslClientAuthenticationOptions Trust()
    {
        var policy = new X509ChainPolicy { TrustMode = X509ChainTrustMode.CustomRootTrust, RevocationMode = X509RevocationMode.NoCheck };
        policy.CustomTrustStore.ImportFromPemFile(servers.Authority);
        return new SslClientAuthenticationOptions { CertificateChainPolicy = policy };
    }

    private static GrpcChannel Channel(string address, string token, SslClientAuthenticationOptions tls) =>
        Channel(address, () => token, tls);

    private static GrpcChannel Channel(string address, Func<string> token, SslClientAuthenticationOptions tls)
    {
        var sent = CallCredentials.FromInterceptor((_, headers) =>
        {
            if (token() is { Length: > 0 } one)
                headers.Add("authorization", $"Bearer {one}");
            return Task.CompletedTask;
        });
        return GrpcChannel.ForAddress(address, new GrpcChannelOptions
        {
            HttpHandler = new SocketsHttpHandler { SslOptions = tls, UseProxy = false },
            DisposeHttpClient = true,
            Credentials = ChannelCredentials.Create(ChannelCredentials.SecureSsl, sent),
        });
    }

    /// <summary>Returns the values of a forecast over the channel.</summary>
    private async Task<long[]> ForecastAsync(GrpcChannel channel)
    {
        await using var client = new QuantraClient(channel, new QuantraClientOptions());
        return ExpectedResults.BitsOf((await client.PredictAsync(Request, Token)).Values);
    }

    private Task<QuantraException> RefusalAsync(GrpcChannel channel) =>
        Assert.ThrowsAsync<QuantraException>(() => ForecastAsync(channel));

    private async Task AssertUnavailableAsync(GrpcChannel channel, string expected)
    {
        var failure = await RefusalAsync(channel);
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (failure.Code, failure.Reason));
        Assert.Contains(expected, failure.Message, StringComparison.Ordinal);
    }
}
