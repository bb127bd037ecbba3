using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>What a server says once it answers.</summary>
/// <param name="Port">On 127.0.0.1.</param>
/// <param name="ProcessId">The process that answers: on Windows, python.exe of an environment only starts it.</param>
/// <param name="Version">Of quantra.</param>
internal sealed record ReadyLine(int Port, int ProcessId, string Version)
{
    /// <summary>A line of its standard output, if it is this one.</summary>
    public static ReadyLine? Of(string line) =>
        JsonLine.Of(line) is { } told && told.IsTrue("ready")
        && told.Whole("port") is { } port and > 0 and <= ushort.MaxValue
        && told.Whole("pid") is { } process
        && told.Text("version") is { } version
            ? new ReadyLine(port, process, version)
            : null;
}
