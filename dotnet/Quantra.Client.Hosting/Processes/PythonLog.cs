using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Processes;

/// <summary>Hands what a Python process writes to standard error on to a logger.</summary>
internal sealed partial class PythonLog(ILogger logger)
{
    /// <summary>Logs a line.</summary>
    /// <param name="line">JSON of Python's log, or the text of whatever else writes there.</param>
    /// <returns>The line as people should read it.</returns>
    public string Hear(string line)
    {
        var told = JsonLine.Of(line);
        if (told?.Text("message") is not { } message || told.Text("level") is not { } level)
        {
            Line(logger, LogLevel.Warning, line); // a library's, or the last words of the process
            return line;
        }

        var (text, severity) = ($"{told.Text("logger")}: {message}{Places(told)}", LevelOf(level));
        Line(logger, severity, text);
        return level + " " + text;
    }

    [LoggerMessage(EventId = 1, Message = "{Line}")]
    private static partial void Line(ILogger logger, LogLevel level, string line);

    /// <summary>Where an exception was raised: that, and no value, is what Python's log tells of it.</summary>
    private static string Places(JsonLine told) =>
        told.Texts("exception") is { Count: > 0 } places ? $" ({string.Join("; ", places)})" : "";

    private static LogLevel LevelOf(string level) => level switch
    {
        "DEBUG" => LogLevel.Debug,
        "INFO" => LogLevel.Information,
        "ERROR" => LogLevel.Error,
        "CRITICAL" => LogLevel.Critical,
        _ => LogLevel.Warning,
    };
}
