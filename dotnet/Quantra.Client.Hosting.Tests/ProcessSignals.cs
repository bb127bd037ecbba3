using System.Diagnostics;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Helpers for processes by id.</summary>
internal static class ProcessSignals
{
    public static void Kill(int pid)
    {
        using var process = Process.GetProcessById(pid);
        process.Kill();
    }

    /// <summary>Sends a signal, for example STOP or CONT.</summary>
    public static async Task SignalAsync(int pid, string signal)
    {
        using var kill = Process.Start("kill", [$"-{signal}", $"{pid}"]);
        await kill.WaitForExitAsync();
        Assert.Equal(0, kill.ExitCode);
    }

    /// <summary>Waits until a process has ended.</summary>
    public static async Task WaitForExitAsync(int pid, CancellationToken cancellationToken)
    {
        using var late = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        late.CancelAfter(TestTimeout.Value);
        while (IsRunning(pid))
            await Task.Delay(20, late.Token);
    }

    /// <summary>Whether a process is running. A zombie is not.</summary>
    public static bool IsRunning(int pid)
    {
        try
        {
            var text = File.ReadAllText($"/proc/{pid}/stat");
            return text[(text.LastIndexOf(')') + 2)..][0] != 'Z';
        }
        catch (IOException)
        {
            return false;
        }
    }
}
