using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>The line that a server prints when it is ready.</summary>
/// <param name="Port">Port on 127.0.0.1.</param>
/// <param name="AdminPort">Port of the admin calls on 127.0.0.1; null = none.</param>
/// <param name="ProcessId">Process of the server. On Windows, the python.exe of an environment only launches it.</param>
/// <param name="Version">Version of quantra.</param>
internal sealed record ReadyLine(int Port, int? AdminPort, int ProcessId, string Version)
{
    /// <summary>Parses a line of standard output; null if it is another line.</summary>
    public static ReadyLine? Parse(string line) =>
        JsonLine.Parse(line) is { } json && json.IsTrue("ready")
        && json.Integer("port") is { } port and > 0 and <= ushort.MaxValue
        && json.Integer("pid") is { } process
        && json.Text("version") is { } version
            ? new ReadyLine(port, json.Integer("admin_port"), process, version)
            : null;
}
