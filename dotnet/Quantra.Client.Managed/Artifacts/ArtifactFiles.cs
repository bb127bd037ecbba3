using System.Security.Cryptography;

namespace Quantra.Client.Managed;

/// <summary>The verified files of an artifact: their sizes and SHA-256 are those of the manifest.</summary>
internal sealed class ArtifactFiles
{
    public const string ManifestFile = "manifest.json";
    public const string WeightsFile = "weights.safetensors";
    public const string FeaturesFile = "features.json";
    public const string CalendarFile = "calendar.json";
    public const string GoldenFile = "golden/golden.json";
    public const string GoldenArraysFile = "golden/arrays.safetensors";
    private const string DigestFile = "manifest.sha256";
    private const string Format = "quantra-artifact";
    private const string EnsembleFormat = "quantra-ensemble";
    private const int FormatVersion = 2;
    private const int MaxTensorBytes = 0x7fffffc7; // the largest array of .NET
    private const int MaxTextBytes = 16 << 20;
    private const int MaxDigestBytes = 1024;

    private static readonly string[] Contents = [WeightsFile, FeaturesFile, CalendarFile, GoldenFile, GoldenArraysFile];

    private readonly Dictionary<string, byte[]> _files;

    private ArtifactFiles(JsonRecord manifest, string manifestHash, Dictionary<string, byte[]> files) =>
        (Manifest, ManifestHash, _files) = (manifest, manifestHash, files);

    /// <summary>The manifest; its keys format, format_version and files have been read.</summary>
    public JsonRecord Manifest { get; }

    /// <summary>SHA-256 of the manifest, which contains those of all other files.</summary>
    public string ManifestHash { get; }

    /// <summary>SHA-256 of a file, in lower-case hex.</summary>
    public string Hash(string file) => Sha256(_files[file]);

    /// <summary>Whether a folder has a manifest.</summary>
    public static bool IsArtifact(string folder) => File.Exists(Path.Combine(folder, ManifestFile));

    /// <summary>SHA-256 of an artifact's manifest, without other checks.</summary>
    public static string HashOfManifest(string folder) => Sha256(ReadFile(folder, ManifestFile, MaxTextBytes));

    /// <summary>Reads and verifies all files of an artifact.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a file is missing, unexpected, a link, changed, truncated, too large or of a newer format.</exception>
    public static ArtifactFiles Read(string folder)
    {
        if (!Directory.Exists(folder))
            throw ArtifactError.Create($"the folder is missing; {ArtifactError.ReplaceAdvice}");
        var manifest = ReadFile(folder, ManifestFile, MaxTextBytes);
        var hash = Sha256(manifest);
        if (!ReadFile(folder, DigestFile, MaxDigestBytes).AsSpan().SequenceEqual(System.Text.Encoding.ASCII.GetBytes($"{hash}  {ManifestFile}\n")))
            throw ArtifactError.Of(ManifestFile, $"its SHA-256 is not the one in {DigestFile}; the artifact was changed or damaged: {ArtifactError.ReplaceAdvice}");
        var record = JsonRecord.Parse(manifest, ManifestFile);
        CheckFormat(record);
        CheckNoOtherFiles(folder);
        return new ArtifactFiles(record, hash, ReadListed(folder, record));
    }

    /// <summary>Parses a file whose root is an object.</summary>
    public JsonRecord Json(string file) => JsonRecord.Parse(_files[file], file);

    /// <summary>Reads the arrays of a file by name.</summary>
    public Dictionary<string, Tensor> Tensors(string file) => Safetensors.Read(_files[file], file);

    private static void CheckFormat(JsonRecord record)
    {
        var (format, version) = (record.Text("format"), record.Integer("format_version"));
        if (format == EnsembleFormat)
            throw ArtifactError.Of(ManifestFile, "is an ensemble, which Quantra.Client.Managed cannot compute; use Quantra.Client or Quantra.Client.Embedded");
        if (format != Format)
            throw ArtifactError.Of(ManifestFile, $"format is '{format}', expected '{Format}'");
        if (version != FormatVersion)
            throw ArtifactError.Of(ManifestFile, $"format version is {version}, this program reads {FormatVersion}; update the package, or train the model again");
    }

    private static Dictionary<string, byte[]> ReadListed(string folder, JsonRecord record)
    {
        var listed = record.Record("files");
        if (!listed.Keys.SequenceEqual(Contents.Order(StringComparer.Ordinal)))
            throw ArtifactError.Of(ManifestFile, $"lists files {string.Join(", ", listed.Keys)}, expected {string.Join(", ", Contents.Order(StringComparer.Ordinal))}");
        return Contents.ToDictionary(name => name, name => ReadVerified(folder, name, listed.Record(name)));
    }

    private static byte[] ReadVerified(string folder, string name, JsonRecord entry)
    {
        var (size, digest) = (entry.Long("bytes"), entry.Text("sha256"));
        entry.End();
        var data = ReadFile(folder, name, name.EndsWith(".json", StringComparison.Ordinal) ? MaxTextBytes : MaxTensorBytes);
        if (data.Length != size)
            throw ArtifactError.Of(name, $"has {data.Length} bytes, the manifest says {size}; the file was truncated or changed: {ArtifactError.ReplaceAdvice}");
        if (Sha256(data) != digest)
            throw ArtifactError.Of(name, $"its SHA-256 is not the manifest's; the file was changed or damaged: {ArtifactError.ReplaceAdvice}");
        return data;
    }

    private static byte[] ReadFile(string folder, string name, int limit)
    {
        for (var part = name; part.Length > 0; part = Path.GetDirectoryName(part) ?? "")
        {
            if (new FileInfo(Path.Combine(folder, part)).LinkTarget is not null)
                throw ArtifactError.Of(part, "is a link; an artifact holds its files, not links to them");
        }

        var file = new FileInfo(Path.Combine(folder, name));
        if (!file.Exists)
            throw ArtifactError.Of(name, $"the file is missing; {ArtifactError.ReplaceAdvice}");
        if (file.Length > limit)
            throw ArtifactError.Of(name, $"is larger than {limit} bytes");
        try
        {
            return File.ReadAllBytes(file.FullName);
        }
        catch (Exception error) when (error is IOException or UnauthorizedAccessException)
        {
            throw ArtifactError.Of(name, $"cannot be read: {error.Message}", error);
        }
    }

    private static void CheckNoOtherFiles(string folder)
    {
        string[] own = [ManifestFile, DigestFile, .. Contents, "golden"];
        var present = new DirectoryInfo(folder).EnumerateFileSystemInfos("*", new EnumerationOptions { AttributesToSkip = 0, RecurseSubdirectories = true })
            .Select(one => Path.GetRelativePath(folder, one.FullName).Replace('\\', '/'));
        if (present.Except(own).Order(StringComparer.Ordinal).FirstOrDefault() is { } unknown)
            throw ArtifactError.Of(unknown, "does not belong to the artifact");
    }

    private static string Sha256(byte[] data) => Convert.ToHexString(SHA256.HashData(data)).ToLowerInvariant();
}
