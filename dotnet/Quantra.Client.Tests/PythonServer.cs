using System.Diagnostics;
using System.Globalization;
using System.Text.Json;

namespace Quantra.Client.Tests;

/// <summary>A real server in a process of its own, which ends where this is disposed.</summary>
internal sealed class PythonServer : IAsyncDisposable
{
    private readonly Process _process;

    private PythonServer(Process process, int port) => (_process, Port) = (process, port);

    /// <summary>Of 127.0.0.1; 0 where it listens on a Unix socket.</summary>
    public int Port { get; }

    /// <summary>Of 127.0.0.1.</summary>
    public Uri Address => new($"http://127.0.0.1:{Port}");

    /// <summary>Starts one and waits until it answers.</summary>
    public static async Task<PythonServer> StartAsync(string models, params string[] more)
    {
        string[] quiet = ["--device", "cpu", "--log-level", "error"];
        var process = Start(["-m", "predictor.server", "--models", models, "--listen", "127.0.0.1:0", .. quiet, .. more]);
        var ready = await process.StandardOutput.ReadLineAsync()
            ?? throw new InvalidOperationException("the Python server ended before it was ready; see its errors above");
        return new PythonServer(process, JsonDocument.Parse(ready).RootElement.TryGetProperty("port", out var port) ? port.GetInt32() : 0);
    }

    /// <summary>Runs a Python program to its end, which must be a good one.</summary>
    public static async Task RunAsync(params string[] arguments)
    {
        using var process = Start(arguments);
        await process.WaitForExitAsync();
        Assert.Equal(0, process.ExitCode);
    }

    /// <summary>Sends it a signal of Unix.</summary>
    /// <param name="name">Such as STOP.</param>
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

    private static Process Start(string[] arguments) =>
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
}
