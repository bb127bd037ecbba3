using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>How a server process ended.</summary>
/// <param name="Error">The reason; null = it was stopped on request.</param>
/// <param name="WasReady">Whether it was ready before.</param>
/// <param name="IsPermanent">Whether a restart would end the same way.</param>
internal sealed record ServerExit(QuantraError? Error, bool WasReady, bool IsPermanent)
{
    /// <summary>The server was stopped on request.</summary>
    public static ServerExit Stopped(bool wasReady) => new(null, wasReady, IsPermanent: false);

    /// <summary>The process could not be started.</summary>
    public static ServerExit NotStarted(QuantraError error) => new(error, WasReady: false, IsPermanent: true);

    /// <summary>The process ended without a request.</summary>
    public static ServerExit Unexpected(string models, PythonEnvironment environment, int exitCode, IReadOnlyList<string> errors, bool wasReady)
    {
        if (ProcessError.OfEnvironment(environment, errors, exitCode) is { } missing)
            return new(missing, wasReady, IsPermanent: true);
        var when = wasReady ? "" : " before it was ready";
        var text = $"the server of {models} ended{when}, {ProcessError.Ending(exitCode, errors)}";
        var error = ProcessError.Of(QuantraStatus.Unavailable, QuantraReason.Unavailable, text, errors, exitCode);
        // The server exits with 1 or 2 if it cannot start or its flags are invalid.
        return new(error, wasReady, IsPermanent: !wasReady && exitCode is 1 or 2);
    }

    /// <summary>The process was killed because it did not respond.</summary>
    public static ServerExit Killed(string models, string problem, IReadOnlyList<string> errors, bool wasReady)
    {
        var text = $"the server of {models} was killed: {problem}";
        return new(ProcessError.Of(QuantraStatus.Unavailable, QuantraReason.Unavailable, text, errors), wasReady, IsPermanent: false);
    }

    /// <summary>Creates the error of a running server that is unhealthy.</summary>
    public static QuantraError Unhealthy(string models, string problem) =>
        new(QuantraStatus.Unavailable, QuantraReason.Unavailable, $"the server of {models} is unhealthy: {problem}");
}
