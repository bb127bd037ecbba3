using System.Diagnostics;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Versions 1, the champion, and 2 of the model mine, and a ledger with bars, trained once for a test class.</summary>
public sealed class TwoVersions(HostingFixture fixture) : IAsyncLifetime
{
    private const string SetupScript = """
        import sys
        from pathlib import Path

        folder = Path(sys.argv[1])
        sys.path.insert(0, sys.argv[2])
        from daily_runs import HAR, LEARNT, daily_bars, save_daily_model
        from predictor.ledger import Ledger

        for version, until in ((1, LEARNT), (2, 20101231)):
            save_daily_model(folder / "models" / "mine", version, HAR, until)
        with Ledger.open(folder / "ledger.db", create=True) as ledger:
            ledger.add_bars(daily_bars(20111230))
        """;

    private readonly string _folder = Directory.CreateTempSubdirectory("quantra-versions-").FullName;

    public async ValueTask InitializeAsync()
    {
        using var python = Process.Start(fixture.Interpreter, ["-c", SetupScript, _folder, Path.Combine(HostingFixture.Repository(), "tests")]);
        await python.WaitForExitAsync();
        Assert.Equal(0, python.ExitCode);
    }

    public ValueTask DisposeAsync()
    {
        Directory.Delete(_folder, recursive: true);
        return ValueTask.CompletedTask;
    }

    /// <summary>Copies the versions and the ledger into a new folder.</summary>
    public string Copy()
    {
        var copy = Directory.CreateTempSubdirectory("quantra-supervised-").FullName;
        foreach (var folder in Directory.EnumerateDirectories(_folder, "*", SearchOption.AllDirectories))
            Directory.CreateDirectory(Path.Combine(copy, Path.GetRelativePath(_folder, folder)));
        foreach (var file in Directory.EnumerateFiles(_folder, "*", SearchOption.AllDirectories))
            File.Copy(file, Path.Combine(copy, Path.GetRelativePath(_folder, file)));
        return copy;
    }
}
