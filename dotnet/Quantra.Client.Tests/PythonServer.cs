using System.Diagnostics;
using System.Globalization;
using System.Text.Json;

namespace Quantra.Client.Tests;

/// <summary>A real server in a child process, which ends on disposal.</summary>
internal sealed class PythonServer : IAsyncDisposable
{
    private readonly Process _process;
    private readonly JsonElement _ready;

    private PythonServer(Process process, JsonElement ready) => (_process, _ready) = (process, ready);

    /// <summary>Port on 127.0.0.1; 0 = Unix socket.</summary>
    public int Port => PortOf("port");

    /// <summary>Port of the admin service; 0 = none.</summary>
    public int AdminPort => PortOf("admin_port");

    /// <summary>Port of the metrics; 0 = none.</summary>
    public int MetricsPort => PortOf("metrics_port");

    public Uri Address => new($"http://127.0.0.1:{Port}");

    /// <summary>Starts a server and waits until it is ready.</summary>
    public static Task<PythonServer> StartAsync(string models, params string[] more) => StartProgramAsync(["predictor.server"], models, more);

    /// <summary>Starts <c>quantra serve</c>, which can also compare and promote versions.</summary>
    public static Task<PythonServer> StartQuantraAsync(string models, params string[] more) => StartProgramAsync(["quantra", "serve"], models, more);

    private static async Task<PythonServer> StartProgramAsync(string[] program, string models, string[] more)
    {
        string[] quiet = ["--device", "cpu", "--log-level", "error"];
        var process = Start(["-m", .. program, "--models", models, "--listen", "127.0.0.1:0", .. quiet, .. more]);
        var ready = await process.StandardOutput.ReadLineAsync()
            ?? throw new InvalidOperationException("the Python server ended before it was ready; see its errors above");
        return new PythonServer(process, JsonDocument.Parse(ready).RootElement);
    }

    /// <summary>Runs a Python program, which must succeed.</summary>
    public static async Task RunAsync(params string[] arguments)
    {
        using var process = Start(arguments);
        await process.WaitForExitAsync();
        Assert.Equal(0, process.ExitCode);
    }

    /// <summary>Closes standard input, which --parent-watch watches, and waits for the exit.</summary>
    public async Task DrainAsync()
    {
        _process.StandardInput.Close();
        await _process.WaitForExitAsync();
    }

    /// <summary>Sends a Unix signal, for example STOP.</summary>
    public async Task SignalAsync(string name)
    {
        using var kill = Process.Start("kill", [$"-{name}", _process.Id.ToString(CultureInfo.InvariantCulture)]);
        await kill.WaitForExitAsync();
        Assert.Equal(0, kill.ExitCode);
    }

    public async ValueTask DisposeAsync()
    {
        _process.Kill();
        await _process.WaitForExitAsync();
        _process.Dispose();
    }

    private int PortOf(string name) => _ready.TryGetProperty(name, out var port) ? port.GetInt32() : 0;

    private static Process Start(string[] arguments) =>
        Process.Start(new ProcessStartInfo(Interpreter(), arguments) { RedirectStandardInput = true, RedirectStandardOutput = true })!;

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
}
