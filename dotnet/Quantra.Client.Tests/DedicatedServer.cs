namespace Quantra.Client.Tests;

/// <summary>A real server of a test class's own, which it may kill and start again on the same port, and whose models it may change.</summary>
public sealed class DedicatedServer(PredictorFixture fixture) : IAsyncLifetime
{
    private readonly string _models = Directory.CreateTempSubdirectory("quantra-models-").FullName;
    private PythonServer? _server;
    private int _port;

    public Uri Address => new($"http://127.0.0.1:{_port}");

    /// <summary>Where models are changed.</summary>
    public Uri AdminAddress => new($"http://127.0.0.1:{_server!.AdminPort}");

    public async ValueTask InitializeAsync()
    {
        CopyModel("small", 1);
        await StartAsync();
    }

    /// <summary>Puts another version of a model into the folder, of the same weights.</summary>
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

    /// <summary>Kills it, as if its machine were gone.</summary>
    public async Task KillAsync() => await _server!.DisposeAsync();

    /// <summary>Starts it, on the port where it was.</summary>
    public async Task StartAsync()
    {
        _server = await PythonServer.StartAsync(
            _models, "--listen", $"127.0.0.1:{_port}", "--admin-listen", "127.0.0.1:0", "--metrics-port", "0", "--parent-watch");
        _port = _server.Port;
    }

    /// <summary>Lets it end in order, as when the program that started it is gone.</summary>
    public async Task DrainAsync() => await _server!.DrainAsync();

    /// <summary>A number of its metrics.</summary>
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
