using System.Diagnostics;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Processes by their number.</summary>
internal static class Pids
{
    /// <summary>Ends a process as a crash would.</summary>
    public static void Kill(int pid)
    {
        using var process = Process.GetProcessById(pid);
        process.Kill();
    }

    /// <summary>Stops a process (SIGSTOP), or lets it go on (SIGCONT).</summary>
    public static async Task SignalAsync(int pid, string signal)
    {
        using var kill = Process.Start("kill", [$"-{signal}", $"{pid}"]);
        await kill.WaitForExitAsync();
        Assert.Equal(0, kill.ExitCode);
    }

    /// <summary>Waits until a process has ended, whoever has to bury it.</summary>
    public static async Task HasEndedAsync(int pid, CancellationToken cancellationToken)
    {
        using var late = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        late.CancelAfter(Patience.Longest);
        while (IsRunning(pid))
            await Task.Delay(20, late.Token);
    }

    /// <summary>Whether it runs; one that has ended and is not buried yet does not.</summary>
    public static bool IsRunning(int pid)
    {
        try
        {
            var told = File.ReadAllText($"/proc/{pid}/stat");
            return told[(told.LastIndexOf(')') + 2)..][0] != 'Z';
        }
        catch (IOException)
        {
            return false;
        }
    }
}
