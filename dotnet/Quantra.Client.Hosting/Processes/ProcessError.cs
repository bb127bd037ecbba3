using System.Globalization;

namespace Quantra.Client.Hosting.Processes;

/// <summary>Errors of Python processes, with the last lines that they wrote.</summary>
internal static class ProcessError
{
    private const string NotInstalled = "No module named '";
    private const int FirstOfSignals = 128;
    private static readonly string[] Ours = ["predictor", "trainers"];

    /// <summary>An error with what the process wrote.</summary>
    /// <param name="status">What kind of failure.</param>
    /// <param name="reason">One of <see cref="QuantraReason"/>.</param>
    /// <param name="message">What is wrong.</param>
    /// <param name="errors">The last lines of standard error.</param>
    /// <param name="exitCode">With which it ended; null = it was ended by force.</param>
    public static QuantraError Of(QuantraStatus status, string reason, string message, IReadOnlyList<string> errors, int? exitCode = null)
    {
        var metadata = new Dictionary<string, string> { ["stderr"] = string.Join('\n', errors) };
        if (exitCode is { } code)
            metadata["exit_code"] = code.ToString(CultureInfo.InvariantCulture);
        return new QuantraError(status, reason, message, metadata.AsReadOnly());
    }

    /// <summary>The error of an environment without quantra, if that is what the lines say.</summary>
    public static QuantraError? OfEnvironment(PythonEnvironment environment, IReadOnlyList<string> errors, int exitCode) =>
        errors.Any(line => Ours.Any(name => line.Contains(NotInstalled + name, StringComparison.Ordinal)))
            ? Of(
                QuantraStatus.FailedPrecondition,
                QuantraReason.PackageMissing,
                $"quantra is not installed in {environment.Folder}; install it: {environment.Installation}",
                errors,
                exitCode)
            : null;

    /// <summary>The exit code, and the last line of standard error, unless a signal ended the process: the line tells nothing of that.</summary>
    public static string Ending(int exitCode, IReadOnlyList<string> errors)
    {
        var last = exitCode is > 0 and < FirstOfSignals && errors.Count > 0 ? $": {errors[^1]}" : "";
        return FormattableString.Invariant($"exit code {exitCode}{last}");
    }

    /// <summary>The error as an exception that shows the lines where it is logged.</summary>
    public static QuantraException ToException(QuantraError error) =>
        error.ToException(error.Metadata.TryGetValue("stderr", out var lines) && lines.Length > 0
            ? new InvalidOperationException($"the last lines of the process were:\n{lines}")
            : null);
}
