using System.Diagnostics;
using Quantra.Client;

namespace Quantra.Benchmark;

/// <summary>Reads a large file of bars.</summary>
internal static class CsvBenchmark
{
    /// <summary>Reports the duration and the growth of peak memory.</summary>
    public static async Task RunAsync(string[] args)
    {
        using var process = Process.GetCurrentProcess();
        var before = process.PeakWorkingSet64;
        BarPanel? bars = null;
        var took = await CallTimer.MsAsync(async () => bars = await BarPanel.ReadCsvAsync(args[0]));
        process.Refresh();
        Report.WriteLine(("seconds", took / 1000), ("bytes", process.PeakWorkingSet64 - before), ("rows", (double)bars!.Symbols.Count * bars.Sessions.Length));
    }
}
