using System.Diagnostics;
using System.Text.RegularExpressions;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A process of a program that supervises a server.</summary>
public sealed partial class ParentTests(HostingFixture fixture)
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_killed_program_leaves_no_server()
    {
        Assert.SkipUnless(OperatingSystem.IsLinux(), "reads what Linux tells of processes");
        using var program = Start();
        var server = await ServerOfAsync(program);
        program.Kill();
        await ProcessSignals.WaitForExitAsync(server, Token);
    }

    [Fact]
    public async Task Ctrl_C_stops_the_program_and_its_server_cleanly()
    {
        Assert.SkipUnless(OperatingSystem.IsLinux(), "sends a signal");
        using var program = Start();
        var server = await ServerOfAsync(program);
        await ProcessSignals.SignalAsync(server, "INT"); // the terminal sends it to both processes
        await ProcessSignals.SignalAsync(program.Id, "INT");
        var rest = await program.StandardOutput.ReadToEndAsync(Token);
        await program.WaitForExitAsync(Token);
        Assert.Equal(0, program.ExitCode);
        Assert.DoesNotContain("restarting", rest, StringComparison.Ordinal);
        Assert.Contains("the server was stopped", rest, StringComparison.Ordinal);
        Assert.False(ProcessSignals.IsRunning(server));
    }

    [GeneratedRegex(@"^server: Ready .*, process (\d+)$")]
    private static partial Regex ReadyLine { get; }

    /// <summary>Returns the server's process id once it is ready and has answered.</summary>
    private static async Task<int> ServerOfAsync(Process program)
    {
        var server = 0;
        while (await program.StandardOutput.ReadLineAsync(Token) is { } line)
        {
            if (ReadyLine.Match(line) is { Success: true } ready)
                server = int.Parse(ready.Groups[1].Value);
            if (line.StartsWith("AAPL: ", StringComparison.Ordinal) && server > 0)
                return server;
        }

        throw new InvalidOperationException("the program ended before its server was ready");
    }

    private Process Start()
    {
        var dll = Path.Combine(AppContext.BaseDirectory, "Quantra.Supervised.dll");
        string[] settings =
        [
            $"--Server:Models={fixture.Models}", $"--Server:PythonEnvironment={fixture.Environment}", "--Server:Device=cpu",
            $"--Bars={fixture.PathOf("bars.csv")}", "--Model=small",
        ];
        return Process.Start(new ProcessStartInfo("dotnet", [dll, .. settings]) { RedirectStandardOutput = true })!;
    }
}
