using System.Security.Cryptography.X509Certificates;

namespace Quantra.Client.Tests;

/// <summary>TLS, certificates, tokens and Unix sockets, set by client options.</summary>
public sealed class CredentialTests(PredictorFixture fixture, SecureServers servers) : IClassFixture<SecureServers>
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private Uri Address => new($"https://127.0.0.1:{servers.Port}");

    private QuantraClientOptions Options => new()
    {
        AuthorityFile = servers.Authority,
        Token = _ => new(SecureServers.Predicts),
        MaxAttempts = 1,
    };

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(fixture.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public async Task A_known_token_gets_a_forecast_over_TLS() => await AssertForecastAsync(Address, Options);

    [Fact]
    public async Task Streams_and_sessions_send_the_token()
    {
        await using var client = new QuantraClient(Address, Options);
        var bars = Request.Bars!;
        Assert.NotNull(Assert.Single(await client.PredictStreamAsync(RequestLists.Of(Request), Token).ReadAsync(Token)).Forecast);
        await using var session = await client.OpenSessionAsync(new SessionRequest("small", bars), Token);
        Assert.NotNull((await session.PushAsync(bars.Last(1), cancellationToken: Token)).Forecast);
        await using var other = new QuantraClient(Address, Options with { Token = _ => new(SecureServers.Explains) });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => other.PredictStreamAsync(RequestLists.Of(Request), Token).ReadAsync(Token));
        Assert.Equal(QuantraReason.PermissionDenied, failure.Reason);
        failure = await Assert.ThrowsAsync<QuantraException>(() => other.OpenSessionAsync(new SessionRequest("small", bars), Token));
        Assert.Equal(QuantraReason.PermissionDenied, failure.Reason);
    }

    [Fact]
    public async Task The_token_is_requested_for_each_call()
    {
        var token = SecureServers.Explains;
        await using var client = new QuantraClient(Address, Options with { Token = _ => new(token) });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(QuantraReason.PermissionDenied, failure.Reason);
        token = SecureServers.Predicts;
        Assert.NotNull(await client.PredictAsync(Request, Token));
    }

    [Fact]
    public async Task A_token_that_does_not_come_ends_with_the_timeout()
    {
        var never = new TaskCompletionSource<string?>();
        var options = Options with { Token = _ => new(never.Task), Timeout = TimeSpan.FromMilliseconds(50) };
        await AssertRefusalAsync(Address, options, QuantraReason.DeadlineExceeded, "");
    }

    [Fact]
    public async Task No_token_is_UNAUTHENTICATED() =>
        await AssertRefusalAsync(Address, Options with { Token = _ => default }, QuantraReason.Unauthenticated, "token");

    [Fact]
    public async Task An_untrusted_authority_is_reported() =>
        await AssertRefusalAsync(Address, Options with { AuthorityFile = null }, QuantraReason.Unavailable, "no trusted authority");

    [Fact]
    public async Task The_client_certificate_is_presented()
    {
        using var read = X509Certificate2.CreateFromPemFile(servers.ClientCertificate, servers.ClientKey);
        using var certificate = X509CertificateLoader.LoadPkcs12(read.Export(X509ContentType.Pkcs12), null);
        var address = new Uri($"https://127.0.0.1:{servers.MutualPort}");
        await AssertForecastAsync(address, Options with { ClientCertificate = certificate });
        await AssertRefusalAsync(address, Options, QuantraReason.Unavailable, "--tls-client-ca");
    }

    [Fact]
    public async Task A_server_that_closes_the_connection_during_the_handshake_is_reported()
    {
        await using var relay = new TcpRelay(Address, bytesOfFirst: 0);
        var address = new Uri($"https://127.0.0.1:{relay.Address.Port}");
        await AssertRefusalAsync(address, Options, QuantraReason.Unavailable, "a server accepted the connection and closed it");
    }

    [Fact]
    public void A_file_without_certificates_is_rejected()
    {
        var failure = Assert.Throws<ArgumentException>(() => new QuantraClient(Address, Options with { AuthorityFile = fixture.PathOf("bars.csv") }));
        Assert.Contains("bars.csv has no PEM certificate", failure.Message, StringComparison.Ordinal);
        Assert.ThrowsAny<IOException>(() => new QuantraClient(Address, Options with { AuthorityFile = fixture.PathOf("nothing.pem") }));
    }

    [Theory]
    [InlineData("two words", "blanks and line ends")]
    [InlineData("ends\n", "blanks and line ends")]
    [InlineData("caf\u00e9", "blanks and line ends")]
    public async Task An_invalid_token_is_rejected(string token, string expected) =>
        await AssertRefusalAsync(Address, Options with { Token = _ => new(token) }, QuantraReason.ConfigurationInvalid, expected);

    [Fact]
    public async Task A_token_is_never_sent_unencrypted_to_another_machine()
    {
        var address = new Uri("http://elsewhere.example:50051");
        await AssertRefusalAsync(address, new() { Token = _ => new("secret") }, QuantraReason.ConfigurationInvalid, "unencrypted");
    }

    [Fact]
    public async Task The_environments_token_is_sent_by_default()
    {
        const string Variable = "QUANTRA_TOKEN";
        Environment.SetEnvironmentVariable(Variable, SecureServers.Predicts);
        try
        {
            await AssertForecastAsync(Address, Options with { Token = null });
            await AssertRefusalAsync(Address, Options with { Token = _ => default }, QuantraReason.Unauthenticated, "token");
        }
        finally
        {
            Environment.SetEnvironmentVariable(Variable, null);
        }
    }

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task Connects_to_a_Unix_socket()
    {
        Assert.SkipWhen(OperatingSystem.IsWindows(), "the Python server has no Unix sockets on Windows");
        var socket = fixture.PathOf("socket/quantra.sock");
        await using var server = await PythonServer.StartAsync(fixture.OneModel, "--listen", $"unix:{socket}");
        await AssertForecastAsync(new Uri($"unix:{socket}"), new() { Token = _ => new("ignored-by-this-server") });
        await AssertRefusalAsync(new Uri("unix:/nowhere/quantra.sock"), new() { MaxAttempts = 1 }, QuantraReason.Unavailable, "unix:/nowhere");
    }

    private async Task AssertForecastAsync(Uri address, QuantraClientOptions options)
    {
        await using var client = new QuantraClient(address, options);
        var forecast = await client.PredictAsync(Request, Token);
        Assert.Equal(fixture.Expected.Of("one").Bits("values"), ExpectedResults.BitsOf(forecast.Values));
    }

    private async Task AssertRefusalAsync(Uri address, QuantraClientOptions options, string reason, string expected)
    {
        await using var client = new QuantraClient(address, options);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(reason, failure.Reason);
        Assert.Contains(expected, failure.Message, StringComparison.Ordinal);
    }
}
