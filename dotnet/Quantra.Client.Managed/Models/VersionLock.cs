using System.Text;
using System.Text.RegularExpressions;

namespace Quantra.Client.Managed;

/// <summary>The versions that may be served, by the SHA-256 of their manifests, which contain those of all other files.</summary>
internal sealed partial class VersionLock
{
    private const string Recipe = "run 'sha256sum */*/manifest.json' in the folder of models and keep what it prints";
    private const int MostShown = 80;

    private readonly string _file;
    private readonly Dictionary<(string Name, int Version), string> _hashes = [];

    private VersionLock(string file) => _file = file;

    /// <summary>Names of the models with a listed version.</summary>
    public IEnumerable<string> Names => _hashes.Keys.Select(one => one.Name);

    /// <summary>Reads a lock file; ignores lines of folders that are not versions, such as drafts.</summary>
    /// <exception cref="QuantraException">
    /// CONFIGURATION_INVALID: the file cannot be read, a line is not what sha256sum prints of a manifest, a version is listed twice, or none is.
    /// </exception>
    public static VersionLock Read(string path)
    {
        var (versions, lines) = (new VersionLock(Path.GetFileName(path)), ReadText(path).Split('\n'));
        for (var index = 0; index < lines.Length; index++)
        {
            if (!string.IsNullOrWhiteSpace(lines[index]))
                versions.Add(path, index + 1, lines[index].TrimEnd('\r'));
        }

        return versions._hashes.Count > 0 ? versions : throw ModelRegistry.Invalid($"{path}: lists no version, so nothing could be served; {Recipe}");
    }

    /// <summary>Checks that a version is listed with this manifest.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: it is not, or its manifest has another hash.</exception>
    public void Check(string name, int version, string manifestHash)
    {
        if (_hashes.TryGetValue((name, version), out var expected) && expected == manifestHash)
            return;
        var problem = expected is null ? "is not listed in" : "is not the one listed in";
        throw ArtifactError.Of(
            ArtifactFiles.ManifestFile,
            $"{problem} the lock file {_file}, so the version is not served; if it is meant to be, make the lock file anew: {Recipe}");
    }

    /// <summary>The errors of a model's listed versions that have no folder.</summary>
    /// <param name="name">The model.</param>
    /// <param name="folder">Folder of its versions.</param>
    public IEnumerable<QuantraError> Missing(string name, string folder) => _hashes.Keys
        .Where(one => one.Name == name && !Directory.Exists(Path.Combine(folder, ModelRegistry.Text(one.Version))))
        .OrderBy(one => one.Version)
        .Select(one => ModelRegistry.OfVersion(
            name,
            one.Version,
            ArtifactError.Create($"is listed in the lock file {_file}, but missing; put it in place, or make the lock file anew: {Recipe}")).Error);

    private static string ReadText(string path)
    {
        try
        {
            return new UTF8Encoding(false, throwOnInvalidBytes: true).GetString(File.ReadAllBytes(path)).TrimStart('\uFEFF');
        }
        catch (Exception error) when (error is IOException or UnauthorizedAccessException)
        {
            throw ModelRegistry.Invalid($"{path}: the lock file cannot be read: {error.Message}; {Recipe}", error);
        }
        catch (DecoderFallbackException error)
        {
            throw ModelRegistry.Invalid($"{path}: the lock file is not text in UTF-8; {Recipe}", error);
        }
    }

    private void Add(string path, int number, string line)
    {
        if (Line().Match(line) is not { Success: true, Groups: var parts })
        {
            var shown = PythonText.Quote(line.Length > MostShown ? line[..MostShown] : line);
            throw ModelRegistry.Invalid(FormattableString.Invariant(
                $"{path}: line {number} is {shown}, but must be 64 hexadecimal digits, two spaces and NAME/VERSION/{ArtifactFiles.ManifestFile}; {Recipe}"));
        }

        var name = parts["name"].Value;
        if (!ModelName.IsValid(name) || ModelRegistry.ParseVersion(parts["version"].Value) is not { } version)
            return;
        if (!_hashes.TryAdd((name, version), parts["hash"].Value.ToLowerInvariant()))
            throw ModelRegistry.Invalid(FormattableString.Invariant($"{path}: line {number} lists {name}/{version} again; make it anew: {Recipe}"));
    }

    [GeneratedRegex(@"^(?<hash>[0-9a-fA-F]{64}) [ *](\./)?(?<name>[^/.][^/]*)/(?<version>[^/.][^/]*)/manifest\.json\z", RegexOptions.ExplicitCapture)]
    private static partial Regex Line();
}
