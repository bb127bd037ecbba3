using Microsoft.Extensions.Logging;
using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Logs the events of a server process.</summary>
internal sealed partial class ServerLog(ILoggerFactory loggers)
{
    private readonly ILogger _log = loggers.CreateLogger<QuantraServer>();

    /// <summary>Logs the lines that the server itself writes.</summary>
    public PythonLog Lines { get; } = new(loggers.CreateLogger("Quantra.Server"));

    [LoggerMessage(1, LogLevel.Information, "the server is ready on port {Port} (process {ProcessId}, quantra {Version}); restarts: {Restarts}")]
    public partial void Ready(int port, int processId, string version, int restarts);

    [LoggerMessage(2, LogLevel.Warning, "{Reason}; restarting in {Seconds:f1} s")]
    public partial void Restarting(string reason, double seconds);

    [LoggerMessage(3, LogLevel.Error, "{Reason}; not restarting")]
    public partial void Failed(string reason);

    [LoggerMessage(4, LogLevel.Information, "the server was stopped")]
    public partial void Stopped();

    [LoggerMessage(5, LogLevel.Warning, "{Reason}")]
    public partial void Unhealthy(string reason);

    [LoggerMessage(6, LogLevel.Debug, "standard output of the server: {Line}")]
    public partial void OutputLine(string line);
}
