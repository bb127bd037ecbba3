using System.Globalization;

namespace Quantra.Client.Hosting.Processes;

/// <summary>Creates errors of Python processes that include the last lines of their output.</summary>
internal static class ProcessError
{
    private const string NotInstalled = "No module named '";
    private const int FirstOfSignals = 128;
    private static readonly string[] Ours = ["predictor", "trainers"];

    /// <summary>Creates an error with the output of the process; the exit code is null if the process was killed.</summary>
    public static QuantraError Of(QuantraStatus status, string reason, string message, IReadOnlyList<string> errors, int? exitCode = null)
    {
        var metadata = new Dictionary<string, string> { ["stderr"] = string.Join('\n', errors) };
        if (exitCode is { } code)
            metadata["exit_code"] = code.ToString(CultureInfo.InvariantCulture);
        return new QuantraError(status, reason, message, metadata.AsReadOnly());
    }

    /// <summary>Returns the error of an environment without quantra, if the output says so.</summary>
    public static QuantraError? OfEnvironment(PythonEnvironment environment, IReadOnlyList<string> errors, int exitCode) =>
        errors.Any(line => Ours.Any(name => line.Contains(NotInstalled + name, StringComparison.Ordinal)))
            ? Of(
                QuantraStatus.FailedPrecondition,
                QuantraReason.PackageMissing,
                $"quantra is not installed in {environment.Folder}; install it: {environment.Installation}",
                errors,
                exitCode)
            : null;

    /// <summary>Describes the exit: the code, and the last line of standard error unless a signal ended the process.</summary>
    public static string Ending(int exitCode, IReadOnlyList<string> errors)
    {
        var last = exitCode is > 0 and < FirstOfSignals && errors.Count > 0 ? $": {errors[^1]}" : "";
        return FormattableString.Invariant($"exit code {exitCode}{last}");
    }

    /// <summary>Converts the error to an exception whose inner exception shows the output.</summary>
    public static QuantraException ToException(QuantraError error) =>
        error.ToException(error.Metadata.TryGetValue("stderr", out var lines) && lines.Length > 0
            ? new InvalidOperationException($"the last lines of the process were:\n{lines}")
            : null);
}
