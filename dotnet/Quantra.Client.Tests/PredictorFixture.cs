using Quantra.Client.Embedded;
using Quantra.Client.Managed;
using Quantra.Client.Tests;

[assembly: AssemblyFixture(typeof(PredictorFixture))]
[assembly: CollectionBehavior(DisableTestParallelization = true)]

namespace Quantra.Client.Tests;

/// <summary>Real Python servers and real embedded Python with the same models.</summary>
public sealed class PredictorFixture : IAsyncLifetime
{
    /// <summary>Trait of tests that a run may skip.</summary>
    public const string Category = "Category";

    /// <summary>Tests that take a second or more and do not depend on culture or framework.</summary>
    public const string Slow = "Slow";

    /// <summary>Environment variable of a folder that tests/contract/dotnet_fixture.py has already written.</summary>
    private const string Fixture = "QUANTRA_TEST_FIXTURE";

    private readonly string _folder = Directory.CreateTempSubdirectory("quantra-").FullName;
    private PythonServer? _shared;
    private PythonServer? _server;
    private QuantraClient? _grpc;
    private EmbeddedPredictor? _embedded;
    private ManagedPredictor? _managed;
    private ExpectedResults? _expected;

    /// <summary>The only client of a server, as calls that another connection abandons may share a batch and change its rounding.</summary>
    public IStockPredictor Grpc => _grpc!;

    public IStockPredictor Embedded => _embedded!;

    /// <summary>The same models without Python; its explanations are slow in a build for debugging.</summary>
    public IStockPredictor Managed => _managed!.WithTimeout(TimeSpan.FromMinutes(5));

    public ExpectedResults Expected => _expected!;

    /// <summary>The server of clients that tests open themselves.</summary>
    internal PythonServer Server => _server!;

    /// <summary>Address of <see cref="Server"/>.</summary>
    public Uri Address => _server!.Address;

    public string Models => PathOf("models");

    /// <summary>Folder with the model small only, which opens sooner than all models.</summary>
    public string OneModel => PathOf("one");

    public string PathOf(string file) => Path.Combine(_folder, file);

    /// <summary>Errors of environments whose Python cannot start, collected before the tests' Python started.</summary>
    public IReadOnlyDictionary<string, QuantraException> Refused { get; private set; } = new Dictionary<string, QuantraException>();

    /// <summary>Options of a predictor with <see cref="OneModel"/>.</summary>
    public EmbeddedPredictorOptions EmbeddedOptions => new()
    {
        Models = OneModel,
        PythonEnvironment = Expected.Environment,
        Device = "cpu",
    };

    public async ValueTask InitializeAsync()
    {
        if (Environment.GetEnvironmentVariable(Fixture) is { Length: > 0 } written)
            Copy(written, _folder);
        else
            await PythonServer.RunAsync(Path.Combine(Repository(), "tests", "contract", "dotnet_fixture.py"), _folder);
        Copy(PathOf("models/small"), PathOf("one/small"));
        _expected = ExpectedResults.Read(PathOf("expected.json"));
        var servers = await Task.WhenAll(PythonServer.StartAsync(Models), PythonServer.StartAsync(Models));
        (_shared, _server) = (servers[0], servers[1]);
        _grpc = new QuantraClient(_shared.Address);
        _managed = await ManagedPredictor.OpenAsync(Models);
        Refused = await EnvironmentScenarios.RefusedAsync(EmbeddedOptions, PathOf("environments"));
        _embedded = await EnvironmentScenarios.OpenAfterCancellingAsync(EmbeddedOptions, Models);
    }

    public async ValueTask DisposeAsync()
    {
        if (_managed is not null)
            await _managed.DisposeAsync();
        if (_embedded is not null)
            await _embedded.DisposeAsync();
        if (_grpc is not null)
            await _grpc.DisposeAsync();
        foreach (var server in new[] { _shared, _server })
        {
            if (server is not null)
                await server.DisposeAsync();
        }

        Directory.Delete(_folder, recursive: true);
    }

    public static string Repository()
    {
        var folder = new DirectoryInfo(AppContext.BaseDirectory);
        while (!File.Exists(Path.Combine(folder.FullName, "pyproject.toml")))
            folder = folder.Parent ?? throw new InvalidOperationException("run these tests from the build folders of the repository");
        return folder.FullName;
    }

    private static void Copy(string from, string to)
    {
        Directory.CreateDirectory(to);
        foreach (var folder in Directory.EnumerateDirectories(from, "*", SearchOption.AllDirectories))
            Directory.CreateDirectory(Path.Combine(to, Path.GetRelativePath(from, folder)));
        foreach (var file in Directory.EnumerateFiles(from, "*", SearchOption.AllDirectories))
            File.Copy(file, Path.Combine(to, Path.GetRelativePath(from, file)));
    }
}
