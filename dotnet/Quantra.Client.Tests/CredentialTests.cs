using System.Security.Cryptography.X509Certificates;

namespace Quantra.Client.Tests;

/// <summary>TLS, certificates, tokens and Unix sockets by the options of a client.</summary>
public sealed class CredentialTests(Doors doors, SecureServers servers) : IClassFixture<SecureServers>
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    private Uri Address => new($"https://127.0.0.1:{servers.Port}");

    private QuantraClientOptions Options => new()
    {
        AuthorityFile = servers.Authority,
        Token = _ => new(SecureServers.Predicts),
        MaxAttempts = 1,
    };

    private PredictionRequest Request => new("small", BarPanel.ReadCsv(doors.PathOf("bars.csv")).Select("AAPL"));

    [Fact]
    public async Task A_forecast_comes_to_a_known_token_over_TLS() => await AssertForecastAsync(Address, Options);

    [Fact]
    public async Task Streams_and_sessions_send_the_token()
    {
        await using var client = new QuantraClient(Address, Options);
        var bars = Request.Bars!;
        Assert.NotNull(Assert.Single(await client.PredictStreamAsync(Requests.Of(Request), Token).ReadAsync(Token)).Forecast);
        await using var session = await client.OpenSessionAsync(new SessionRequest("small", bars), Token);
        Assert.NotNull((await session.PushAsync(bars.Last(1), cancellationToken: Token)).Forecast);
        await using var other = new QuantraClient(Address, Options with { Token = _ => new(SecureServers.Explains) });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => other.PredictStreamAsync(Requests.Of(Request), Token).ReadAsync(Token));
        Assert.Equal(QuantraReason.PermissionDenied, failure.Reason);
        failure = await Assert.ThrowsAsync<QuantraException>(() => other.OpenSessionAsync(new SessionRequest("small", bars), Token));
        Assert.Equal(QuantraReason.PermissionDenied, failure.Reason);
    }

    [Fact]
    public async Task A_token_is_asked_for_at_each_call()
    {
        var token = SecureServers.Explains;
        await using var client = new QuantraClient(Address, Options with { Token = _ => new(token) });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(QuantraReason.PermissionDenied, failure.Reason);
        token = SecureServers.Predicts;
        Assert.NotNull(await client.PredictAsync(Request, Token));
    }

    [Fact]
    public async Task No_token_is_UNAUTHENTICATED() =>
        await AssertRefusalAsync(Address, Options with { Token = _ => default }, QuantraReason.Unauthenticated, "token");

    [Fact]
    public async Task An_authority_that_did_not_sign_is_told() =>
        await AssertRefusalAsync(Address, Options with { AuthorityFile = null }, QuantraReason.Unavailable, "trusts no authority");

    [Fact]
    public async Task A_certificate_is_shown_where_one_is_asked_for()
    {
        using var read = X509Certificate2.CreateFromPemFile(servers.ClientCertificate, servers.ClientKey);
        using var certificate = X509CertificateLoader.LoadPkcs12(read.Export(X509ContentType.Pkcs12), null);
        var address = new Uri($"https://127.0.0.1:{servers.MutualPort}");
        await AssertForecastAsync(address, Options with { ClientCertificate = certificate });
        await AssertRefusalAsync(address, Options, QuantraReason.Unavailable, "--tls-client-ca");
    }

    [Fact]
    public async Task Who_hangs_up_while_certificates_are_exchanged_is_somebody_who_is_there()
    {
        await using var relay = new Relay(Address, bytesOfFirst: 0);
        var address = new Uri($"https://127.0.0.1:{relay.Address.Port}");
        await AssertRefusalAsync(address, Options, QuantraReason.Unavailable, "somebody is there and hung up");
    }

    [Fact]
    public void A_file_without_certificates_is_refused()
    {
        var failure = Assert.Throws<ArgumentException>(() => new QuantraClient(Address, Options with { AuthorityFile = doors.PathOf("bars.csv") }));
        Assert.Contains("bars.csv holds no certificate", failure.Message, StringComparison.Ordinal);
        Assert.ThrowsAny<IOException>(() => new QuantraClient(Address, Options with { AuthorityFile = doors.PathOf("nothing.pem") }));
    }

    [Theory]
    [InlineData("two words", "blank or line end")]
    [InlineData("ends\n", "blank or line end")]
    [InlineData("caf\u00e9", "blank or line end")]
    public async Task A_token_that_no_header_can_hold_is_refused(string token, string told) =>
        await AssertRefusalAsync(Address, Options with { Token = _ => new(token) }, QuantraReason.ConfigurationInvalid, told);

    [Fact]
    public async Task A_token_does_not_leave_this_machine_in_plain_text()
    {
        var door = new Uri("http://elsewhere.example:50051");
        await AssertRefusalAsync(door, new() { Token = _ => new("secret") }, QuantraReason.ConfigurationInvalid, "in plain text");
    }

    [Fact]
    public async Task The_token_of_the_environment_is_sent_unless_another_is_given()
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
    [Trait(Doors.Category, Doors.Slow)]
    public async Task A_Unix_socket_is_an_address()
    {
        Assert.SkipWhen(OperatingSystem.IsWindows(), "the Python server has no Unix sockets on Windows");
        var socket = doors.PathOf("door/quantra.sock");
        await using var server = await PythonServer.StartAsync(doors.Models, "--listen", $"unix:{socket}");
        await AssertForecastAsync(new Uri($"unix:{socket}"), new() { Token = _ => new("to-nobody-who-asks") });
        await AssertRefusalAsync(new Uri("unix:/nowhere/quantra.sock"), new() { MaxAttempts = 1 }, QuantraReason.Unavailable, "unix:/nowhere");
    }

    private async Task AssertForecastAsync(Uri address, QuantraClientOptions options)
    {
        await using var client = new QuantraClient(address, options);
        var forecast = await client.PredictAsync(Request, Token);
        Assert.Equal(doors.Expected.Of("one").Bits("values"), Expected.BitsOf(forecast.Values));
    }

    private async Task AssertRefusalAsync(Uri address, QuantraClientOptions options, string reason, string told)
    {
        await using var client = new QuantraClient(address, options);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.PredictAsync(Request, Token));
        Assert.Equal(reason, failure.Reason);
        Assert.Contains(told, failure.Message, StringComparison.Ordinal);
    }
}
