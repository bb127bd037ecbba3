using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>How a server's process came to its end.</summary>
/// <param name="Error">Why; null = it was told to end.</param>
/// <param name="WasReady">Whether it had answered before.</param>
/// <param name="IsHopeless">Whether another start would end in the same way.</param>
internal sealed record ServerEnd(QuantraError? Error, bool WasReady, bool IsHopeless)
{
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
        if (ProcessError.OfEnvironment(environment, errors, exitCode) is { } missing)
            return new(missing, wasReady, IsHopeless: true);
        var when = wasReady ? "" : " before it was ready";
        var text = $"the server of {models} ended{when}, {ProcessError.Ending(exitCode, errors)}";
        var error = ProcessError.Of(QuantraStatus.Unavailable, QuantraReason.Unavailable, text, errors, exitCode);
        // Status 1 and 2 are its own words: it cannot start, or not with these flags.
        return new(error, wasReady, IsHopeless: !wasReady && exitCode is 1 or 2);
    }

    /// <summary>It was ended by force, because it did not do what it should.</summary>
    public static ServerEnd ByForce(string models, string trouble, IReadOnlyList<string> errors, bool wasReady)
    {
        var text = $"the server of {models} was ended by force: {trouble}";
        return new(ProcessError.Of(QuantraStatus.Unavailable, QuantraReason.Unavailable, text, errors), wasReady, IsHopeless: false);
    }

    /// <summary>The error of one that runs and is not well.</summary>
    public static QuantraError Unwell(string models, string trouble) =>
        new(QuantraStatus.Unavailable, QuantraReason.Unavailable, $"the server of {models} is not well: {trouble}");
}
