using System.Globalization;
using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>How a server's process came to its end.</summary>
/// <param name="Error">Why; null = it was told to end.</param>
/// <param name="WasReady">Whether it had answered before.</param>
/// <param name="IsHopeless">Whether another start would end in the same way.</param>
internal sealed record ServerEnd(QuantraError? Error, bool WasReady, bool IsHopeless)
{
    private const int FirstOfSignals = 128;
    private const string NotInstalled = "No module named 'predictor";

    /// <summary>It was told to.</summary>
    public static ServerEnd Told(bool wasReady) => new(null, wasReady, IsHopeless: false);

    /// <summary>It could not even be begun.</summary>
    public static ServerEnd NotBegun(QuantraError error) => new(error, WasReady: false, IsHopeless: true);

    /// <summary>It ended by itself, or by somebody else.</summary>
    /// <param name="models">That it served.</param>
    /// <param name="environment">Whose Python ran it.</param>
    /// <param name="exitCode">With which it ended.</param>
    /// <param name="errors">The last lines of its log.</param>
    /// <param name="wasReady">Whether it had answered before.</param>
    public static ServerEnd ByItself(string models, PythonEnvironment environment, int exitCode, IReadOnlyList<string> errors, bool wasReady)
    {
        if (errors.Any(line => line.Contains(NotInstalled, StringComparison.Ordinal)))
        {
            var message = $"quantra is not installed in {environment.Folder}; install it: {environment.Installation}";
            return new(Told(QuantraStatus.FailedPrecondition, QuantraReason.PackageMissing, message, errors), wasReady, IsHopeless: true);
        }

        var code = exitCode.ToString(CultureInfo.InvariantCulture);
        // Where a signal ended it, its last line tells nothing of that.
        var last = exitCode is > 0 and < FirstOfSignals && errors.Count > 0 ? $": {errors[^1]}" : "";
        var text = $"the server of {models} ended{(wasReady ? "" : " before it was ready")}, exit code {code}{last}";
        // Status 1 and 2 are its own words: it cannot start, or not with these flags.
        return new(Unavailable(text, errors, ("exit_code", code)), wasReady, IsHopeless: !wasReady && exitCode is 1 or 2);
    }

    /// <summary>It was ended by force, because it did not do what it should.</summary>
    public static ServerEnd ByForce(string models, string trouble, IReadOnlyList<string> errors, bool wasReady) =>
        new(Unavailable($"the server of {models} was ended by force: {trouble}", errors), wasReady, IsHopeless: false);

    /// <summary>The error of one that runs and is not well.</summary>
    public static QuantraError Unwell(string models, string trouble) =>
        new(QuantraStatus.Unavailable, QuantraReason.Unavailable, $"the server of {models} is not well: {trouble}");

    private static QuantraError Unavailable(string message, IReadOnlyList<string> errors, params (string Name, string Value)[] facts) =>
        Told(QuantraStatus.Unavailable, QuantraReason.Unavailable, message, errors, facts);

    private static QuantraError Told(
        QuantraStatus status, string reason, string message, IReadOnlyList<string> errors, params (string Name, string Value)[] facts)
    {
        var metadata = facts.ToDictionary(fact => fact.Name, fact => fact.Value);
        metadata["stderr"] = string.Join('\n', errors);
        return new QuantraError(status, reason, message, metadata.AsReadOnly());
    }
}
