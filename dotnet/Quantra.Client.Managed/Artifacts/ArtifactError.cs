namespace Quantra.Client.Managed;

/// <summary>Creates the errors of damaged, foreign or unsupported artifacts. All have the reason ARTIFACT_INVALID.</summary>
internal static class ArtifactError
{
    /// <summary>Advice for incomplete or damaged artifacts, which cannot be repaired.</summary>
    public const string ReplaceAdvice = "copy the artifact again from where it was trained, or train it again";

    /// <summary>The error for one file, named relative to the artifact's folder.</summary>
    public static QuantraException Of(string file, string problem, Exception? cause = null) =>
        Create($"{file}: {problem}", new Dictionary<string, string> { ["file"] = file }, cause);

    /// <summary>The error for one key of a file.</summary>
    public static QuantraException OfKey(string file, string key, string problem) => Create(
        $"{file}: {(key.Length > 0 ? key + " " : "")}{problem}",
        new Dictionary<string, string> { ["file"] = file, ["key"] = key });

    /// <summary>The same error with the path of a folder inside the artifact.</summary>
    public static QuantraException Within(string path, QuantraException error)
    {
        var metadata = new Dictionary<string, string>(error.Metadata);
        if (metadata.TryGetValue("file", out var file))
            metadata["file"] = $"{path}/{file}";
        return Create($"{path}/{error.Message}", metadata, error);
    }

    /// <summary>An error that no file causes.</summary>
    public static QuantraException Create(string message, IReadOnlyDictionary<string, string>? metadata = null, Exception? cause = null) =>
        new QuantraError(
            QuantraStatus.DataLoss,
            QuantraReason.ArtifactInvalid,
            message,
            metadata ?? new Dictionary<string, string>()).ToException(cause);
}
