using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Processes;

/// <summary>Logs what a Python process writes to standard error.</summary>
internal sealed partial class PythonLog(ILogger logger)
{
    /// <summary>Logs a line.</summary>
    /// <param name="line">A JSON record of Python's log, or any other text.</param>
    /// <returns>The line in a readable form.</returns>
    public string Log(string line)
    {
        var json = JsonLine.Parse(line);
        if (json?.Text("message") is not { } message || json.Text("level") is not { } level)
        {
            Line(logger, LogLevel.Warning, line); // from a library, or from a crash
            return line;
        }

        var (text, severity) = ($"{json.Text("logger")}: {message}{FormatLocations(json)}", ParseLevel(level));
        Line(logger, severity, text);
        return level + " " + text;
    }

    [LoggerMessage(EventId = 1, Message = "{Line}")]
    private static partial void Line(ILogger logger, LogLevel level, string line);

    /// <summary>Where an exception was raised. Python's log has only this and no values.</summary>
    private static string FormatLocations(JsonLine json) =>
        json.Texts("exception") is { Count: > 0 } locations ? $" ({string.Join("; ", locations)})" : "";

    private static LogLevel ParseLevel(string level) => level switch
    {
        "DEBUG" => LogLevel.Debug,
        "INFO" => LogLevel.Information,
        "ERROR" => LogLevel.Error,
        "CRITICAL" => LogLevel.Critical,
        _ => LogLevel.Warning,
    };
}
