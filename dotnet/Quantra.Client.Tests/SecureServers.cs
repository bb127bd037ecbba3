namespace Quantra.Client.Tests;

/// <summary>Two real servers with TLS and tokens, one of which requires client certificates.</summary>
public sealed class SecureServers(PredictorFixture fixture) : IAsyncLifetime
{
    /// <summary>A token with only the role predict.</summary>
    public const string Predicts = "predicts-predicts-predicts-predicts";

    /// <summary>A token with only the role explain.</summary>
    public const string Explains = "explains-explains-explains-explains";

    private readonly string _folder = Directory.CreateTempSubdirectory("quantra-tls-").FullName;
    private PythonServer? _open;
    private PythonServer? _mutual;

    public int Port => _open!.Port;

    /// <summary>Port of the server that requires client certificates.</summary>
    public int MutualPort => _mutual!.Port;

    public string Authority => PathOf("ca.pem");

    public string ClientCertificate => PathOf("client.pem");

    public string ClientKey => PathOf("client.key");

    public async ValueTask InitializeAsync()
    {
        await PythonServer.RunAsync("-m", "predictor.cli", "certs", PathOf(""), "--json");
        var tokens = Path.Combine(_folder, "tokens.txt");
        await File.WriteAllTextAsync(tokens, $"desk predict {Predicts}\nresearch explain {Explains}\n");
        string[] secure = ["--tls-cert", PathOf("server.pem"), "--tls-key", PathOf("server.key"), "--token-file", tokens];
        var starting = PythonServer.StartAsync(fixture.OneModel, secure);
        _mutual = await PythonServer.StartAsync(fixture.OneModel, [.. secure, "--tls-client-ca", Authority]);
        _open = await starting;
    }

    public async ValueTask DisposeAsync()
    {
        if (_open is not null)
            await _open.DisposeAsync();
        if (_mutual is not null)
            await _mutual.DisposeAsync();
        Directory.Delete(_folder, recursive: true);
    }

    private string PathOf(string file) => Path.Combine(_folder, "certs", file);
}
