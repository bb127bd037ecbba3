using System.Diagnostics;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>Reading a large file of bars.</summary>
internal static class Csv
{
    /// <summary>How long it takes, and how much more memory the process has at most.</summary>
    public static async Task RunAsync(string[] args)
    {
        using var process = Process.GetCurrentProcess();
        var before = process.PeakWorkingSet64;
        BarPanel? bars = null;
        var took = await Clock.MsAsync(async () => bars = await BarPanel.ReadCsvAsync(args[0]));
        process.Refresh();
        Told.Line(("seconds", took / 1000), ("bytes", process.PeakWorkingSet64 - before), ("rows", (double)bars!.Symbols.Count * bars.Sessions.Length));
    }
}
