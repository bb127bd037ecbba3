using System.Diagnostics;
using System.Text.Json;
using Quantra.Client.Embedded;
using Quantra.Client.Tests;

[assembly: AssemblyFixture(typeof(Doors))]
[assembly: CollectionBehavior(DisableTestParallelization = true)]

namespace Quantra.Client.Tests;

/// <summary>A real Python server and the real Python inside this process, over the same models.</summary>
public sealed class Doors : IAsyncLifetime
{
    private readonly string _folder = Directory.CreateTempSubdirectory("quantra-").FullName;
    private Process? _server;
    private QuantraClient? _grpc;
    private EmbeddedPredictor? _embedded;
    private Expected? _expected;

    public IStockPredictor Grpc => _grpc!;

    public IStockPredictor Embedded => _embedded!;

    public Expected Expected => _expected!;

    public Uri Address { get; private set; } = new("http://127.0.0.1");

    public string Models => PathOf("models");

    public string PathOf(string file) => Path.Combine(_folder, file);

    public EmbeddedPredictorOptions EmbeddedOptions => new()
    {
        Models = Models,
        PythonEnvironment = Expected.Environment,
        Device = "cpu",
    };

    public async ValueTask InitializeAsync()
    {
        var script = Path.Combine(Repository(), "tests", "contract", "dotnet_fixture.py");
        using (var fixture = Python([script, _folder]))
        {
            await fixture.WaitForExitAsync();
            Assert.Equal(0, fixture.ExitCode);
        }

        _expected = Expected.Read(PathOf("expected.json"));
        string[] quiet = ["--device", "cpu", "--log-level", "error"];
        _server = Python(["-m", "predictor.server", "--models", Models, "--listen", "127.0.0.1:0", .. quiet]);
        var ready = await _server.StandardOutput.ReadLineAsync()
            ?? throw new InvalidOperationException("the Python server ended before it was ready; see its errors above");
        Address = new Uri($"http://127.0.0.1:{JsonDocument.Parse(ready).RootElement.GetProperty("port").GetInt32()}");
        _grpc = new QuantraClient(Address);
        _embedded = await EmbeddedPredictor.OpenAsync(EmbeddedOptions);
    }

    public async ValueTask DisposeAsync()
    {
        if (_embedded is not null)
            await _embedded.DisposeAsync();
        if (_grpc is not null)
            await _grpc.DisposeAsync();
        if (_server is not null)
        {
            _server.Kill();
            await _server.WaitForExitAsync();
            _server.Dispose();
        }

        Directory.Delete(_folder, recursive: true);
    }

    private static Process Python(string[] arguments) =>
        Process.Start(new ProcessStartInfo(Interpreter(), arguments) { RedirectStandardOutput = true })!;

    private static string Interpreter()
    {
        if (Environment.GetEnvironmentVariable("QUANTRA_PYTHON") is { Length: > 0 } python)
            return python;
        var environment = Environment.GetEnvironmentVariable("VIRTUAL_ENV")
            ?? throw new InvalidOperationException(
                "these tests need a Python with quantra: activate its virtual environment, or set QUANTRA_PYTHON to its python");
        return OperatingSystem.IsWindows()
            ? Path.Combine(environment, "Scripts", "python.exe")
            : Path.Combine(environment, "bin", "python");
    }

    public static string Repository()
    {
        var folder = new DirectoryInfo(AppContext.BaseDirectory);
        while (!File.Exists(Path.Combine(folder.FullName, "pyproject.toml")))
            folder = folder.Parent ?? throw new InvalidOperationException("run these tests from the build folders of the repository");
        return folder.FullName;
    }
}
