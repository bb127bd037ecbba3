namespace Quantra.Client.Tests;

/// <summary>A real server for one test class, which may kill and restart it on the same port and change its models.</summary>
public sealed class DedicatedServer(PredictorFixture fixture) : IAsyncLifetime
{
    private readonly string _models = Directory.CreateTempSubdirectory("quantra-models-").FullName;
    private PythonServer? _server;
    private int _port;

    public Uri Address => new($"http://127.0.0.1:{_port}");

    /// <summary>Address of the admin service.</summary>
    public Uri AdminAddress => new($"http://127.0.0.1:{_server!.AdminPort}");

    public async ValueTask InitializeAsync()
    {
        CopyModel("small", 1);
        await StartAsync();
    }

    /// <summary>Copies a model into the folder as another version.</summary>
    public void CopyModel(string name, int version)
    {
        var (from, to) = (Path.Combine(fixture.Models, name, "1"), Path.Combine(_models, name, $"{version}"));
        foreach (var file in Directory.EnumerateFiles(from, "*", SearchOption.AllDirectories))
        {
            var copy = Path.Combine(to, Path.GetRelativePath(from, file));
            Directory.CreateDirectory(Path.GetDirectoryName(copy)!);
            File.Copy(file, copy, overwrite: true);
        }
    }

    /// <summary>Kills the server, as if its machine had failed.</summary>
    public async Task KillAsync() => await _server!.DisposeAsync();

    /// <summary>Starts the server on its previous port.</summary>
    public async Task StartAsync()
    {
        _server = await PythonServer.StartAsync(
            _models, "--listen", $"127.0.0.1:{_port}", "--admin-listen", "127.0.0.1:0", "--metrics-port", "0", "--parent-watch");
        _port = _server.Port;
    }

    /// <summary>Lets the server drain, as after the exit of its parent.</summary>
    public async Task DrainAsync() => await _server!.DrainAsync();

    /// <summary>Returns the value of a metric.</summary>
    public async Task<double> MetricAsync(string name, CancellationToken cancellationToken)
    {
        using var http = new HttpClient();
        var page = await http.GetStringAsync(new Uri($"http://127.0.0.1:{_server!.MetricsPort}/metrics"), cancellationToken);
        var line = page.Split('\n').Single(one => one.StartsWith(name + " ", StringComparison.Ordinal));
        return double.Parse(line.Split(' ')[1], System.Globalization.CultureInfo.InvariantCulture);
    }

    public async ValueTask DisposeAsync()
    {
        if (_server is not null)
            await _server.DisposeAsync();
        Directory.Delete(_models, recursive: true);
    }
}
