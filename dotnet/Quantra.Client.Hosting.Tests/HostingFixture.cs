using System.Diagnostics;
using Quantra.Client.Hosting.Tests;

[assembly: AssemblyFixture(typeof(HostingFixture))]

namespace Quantra.Client.Hosting.Tests;

/// <summary>A folder with models and bars, and the Python environment that created them.</summary>
public sealed class HostingFixture : IAsyncLifetime
{
    private const string SetupScript = """
        import sys
        from dataclasses import replace
        from pathlib import Path

        folder, tests = Path(sys.argv[1]), sys.argv[2]
        sys.path.insert(0, tests)
        from artifacts import recent_bars, small_models
        from ledger_records import forecast_record
        from market import bokeh_panel
        from predictor.due_forecasts import score_due_forecasts
        from predictor.evidence import Lamp
        from predictor.ledger import EvidenceRecord, Ledger

        (small_models(folder / "models") / "small" / "aliases.json").write_text('{"canary": 9, "champion": 1}')
        recent_bars("AAPL", "IBM").write_csv(folder / "bars.csv")
        bokeh_panel("AAPL").last(420).write_csv(folder / "history.csv")
        (folder / "environment.txt").write_text(sys.prefix)
        panel = bokeh_panel("AAPL", "IBM", "MSFT").last(60)
        with Ledger.open(folder / "ledger.db", create=True) as ledger:
            ledger.append([replace(forecast_record(panel, day, "AAPL"), model="small") for day in range(20, 50)])
            ledger.add_bars(panel)
            score_due_forecasts(ledger)
            ledger.append([EvidenceRecord(
                model="small", version=1, monitor="coverage too few", horizon=1, session=ledger.last_session, lamp=Lamp.AMBER, state={})])
        """;

    private readonly string _folder = Directory.CreateTempSubdirectory("quantra-hosting-").FullName;

    /// <summary>A folder with one model, small@1, and an alias of a version that is missing.</summary>
    public string Models => PathOf("models");

    /// <summary>Virtual environment with quantra.</summary>
    public string Environment { get; private set; } = "";

    /// <summary>A request for that model.</summary>
    public PredictionRequest Request { get; private set; } = null!;

    /// <summary>Python interpreter with quantra.</summary>
    public string Interpreter { get; } = FindInterpreter();

    public string PathOf(string name) => Path.Combine(_folder, name);

    /// <summary>Options of a server with these models.</summary>
    public QuantraServerOptions Options(Action<QuantraServerOptions>? change = null)
    {
        var options = new QuantraServerOptions { Models = Models, PythonEnvironment = Environment, Device = "cpu" };
        change?.Invoke(options);
        return options;
    }

    public async ValueTask InitializeAsync()
    {
        using var python = Process.Start(Interpreter, ["-c", SetupScript, _folder, Path.Combine(Repository(), "tests")]);
        await python.WaitForExitAsync();
        Assert.Equal(0, python.ExitCode);
        Environment = await File.ReadAllTextAsync(PathOf("environment.txt"));
        Request = new PredictionRequest("small", (await BarPanel.ReadCsvAsync(PathOf("bars.csv"))).Select("AAPL"));
    }

    public ValueTask DisposeAsync()
    {
        Directory.Delete(_folder, recursive: true);
        return ValueTask.CompletedTask;
    }

    public static string Repository()
    {
        var folder = new DirectoryInfo(AppContext.BaseDirectory);
        while (!File.Exists(Path.Combine(folder.FullName, "pyproject.toml")))
            folder = folder.Parent ?? throw new InvalidOperationException("run these tests from the build folders of the repository");
        return folder.FullName;
    }

    private static string FindInterpreter()
    {
        if (System.Environment.GetEnvironmentVariable("QUANTRA_PYTHON") is { Length: > 0 } python)
            return python;
        var environment = System.Environment.GetEnvironmentVariable("VIRTUAL_ENV")
            ?? throw new InvalidOperationException(
                "these tests need a Python with quantra: activate its virtual environment, or set QUANTRA_PYTHON to its python");
        return OperatingSystem.IsWindows()
            ? Path.Combine(environment, "Scripts", "python.exe")
            : Path.Combine(environment, "bin", "python");
    }
}
