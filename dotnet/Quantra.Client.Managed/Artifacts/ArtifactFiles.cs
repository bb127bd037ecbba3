using System.Security.Cryptography;

namespace Quantra.Client.Managed;

/// <summary>The verified files of an artifact or, without its members', of an ensemble: their sizes and SHA-256 are those of the manifest.</summary>
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

    private const string MembersFolder = "members";

    private static readonly string[] Contents = [WeightsFile, FeaturesFile, CalendarFile, GoldenFile, GoldenArraysFile];

    private static readonly string[] EnsembleContents = [GoldenFile, GoldenArraysFile];

    private readonly Dictionary<string, byte[]> _files;

    private ArtifactFiles(JsonRecord manifest, string manifestHash, IReadOnlyList<EnsembleMember> members, Dictionary<string, byte[]> files) =>
        (Manifest, ManifestHash, Members, _files) = (manifest, manifestHash, members, files);

    /// <summary>The manifest; its keys format, format_version, files and members have been read.</summary>
    public JsonRecord Manifest { get; }

    /// <summary>The members of an ensemble; empty for an artifact.</summary>
    public IReadOnlyList<EnsembleMember> Members { get; }

    /// <summary>SHA-256 of the manifest, which contains those of all other files.</summary>
    public string ManifestHash { get; }

    /// <summary>SHA-256 of a file, in lower-case hex.</summary>
    public string Hash(string file) => ComputeSha256(_files[file]);

    /// <summary>Path of an ensemble's member in its folder.</summary>
    public static string PathOf(string member) => $"{MembersFolder}/{member}";

    /// <summary>Whether a folder has a manifest.</summary>
    public static bool IsArtifact(string folder) => File.Exists(Path.Combine(folder, ManifestFile));

    /// <summary>SHA-256 of an artifact's manifest, without other checks.</summary>
    public static string ComputeManifestHash(string folder) => ComputeSha256(ReadFile(folder, ManifestFile, MaxTextBytes));

    /// <summary>Reads and verifies all files of an artifact, or those of an ensemble except its members'.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a file is missing, unexpected, a link, changed, truncated, too large or of a newer format.</exception>
    public static ArtifactFiles Read(string folder)
    {
        if (!Directory.Exists(folder))
            throw ArtifactError.Create($"the folder is missing; {ArtifactError.ReplaceAdvice}");
        var manifest = ReadFile(folder, ManifestFile, MaxTextBytes);
        var hash = ComputeSha256(manifest);
        if (!ReadFile(folder, DigestFile, MaxDigestBytes).AsSpan().SequenceEqual(System.Text.Encoding.ASCII.GetBytes($"{hash}  {ManifestFile}\n")))
            throw ArtifactError.Of(ManifestFile, $"its SHA-256 is not the one in {DigestFile}; the artifact was changed or damaged: {ArtifactError.ReplaceAdvice}");
        var record = JsonRecord.Parse(manifest, ManifestFile);
        var isEnsemble = CheckFormat(record);
        var (members, contents) = isEnsemble ? (EnsembleMember.ReadAll(record), EnsembleContents) : ([], Contents);
        foreach (var path in members.Select(member => PathOf(member.Name)))
            CheckNoLink(folder, path);
        CheckNoOtherFiles(folder, contents, members);
        return new ArtifactFiles(record, hash, members, ReadListed(folder, record, contents));
    }

    /// <summary>Parses a file whose root is an object.</summary>
    public JsonRecord Json(string file) => JsonRecord.Parse(_files[file], file);

    /// <summary>Reads the arrays of a file by name.</summary>
    public Dictionary<string, Tensor> Tensors(string file) => Safetensors.Read(_files[file], file);

    /// <summary>Checks the format, and returns whether it is an ensemble's.</summary>
    private static bool CheckFormat(JsonRecord record)
    {
        var (format, version) = (record.Text("format"), record.Integer("format_version"));
        if (format is not (Format or EnsembleFormat))
            throw ArtifactError.Of(ManifestFile, $"format is '{format}', expected '{Format}' or '{EnsembleFormat}'");
        if (version != FormatVersion)
            throw ArtifactError.Of(ManifestFile, $"format version is {version}, this program reads {FormatVersion}; update the package, or train the model again");
        return format == EnsembleFormat;
    }

    private static Dictionary<string, byte[]> ReadListed(string folder, JsonRecord record, string[] contents)
    {
        var listed = record.Record("files");
        if (!listed.Keys.SequenceEqual(contents.Order(StringComparer.Ordinal)))
            throw ArtifactError.Of(ManifestFile, $"lists files {string.Join(", ", listed.Keys)}, expected {string.Join(", ", contents.Order(StringComparer.Ordinal))}");
        return contents.ToDictionary(name => name, name => ReadVerified(folder, name, listed.Record(name)));
    }

    private static byte[] ReadVerified(string folder, string name, JsonRecord entry)
    {
        var (size, digest) = (entry.Long("bytes"), entry.Text("sha256"));
        entry.End();
        var data = ReadFile(folder, name, name.EndsWith(".json", StringComparison.Ordinal) ? MaxTextBytes : MaxTensorBytes);
        if (data.Length != size)
            throw ArtifactError.Of(name, $"has {data.Length} bytes, the manifest says {size}; the file was truncated or changed: {ArtifactError.ReplaceAdvice}");
        if (ComputeSha256(data) != digest)
            throw ArtifactError.Of(name, $"its SHA-256 is not the manifest's; the file was changed or damaged: {ArtifactError.ReplaceAdvice}");
        return data;
    }

    private static byte[] ReadFile(string folder, string name, int limit)
    {
        CheckNoLink(folder, name);
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

    private static void CheckNoLink(string folder, string name)
    {
        for (var part = name; part.Length > 0; part = Path.GetDirectoryName(part) ?? "")
        {
            if (new FileInfo(Path.Combine(folder, part)).LinkTarget is not null)
                throw ArtifactError.Of(part.Replace('\\', '/'), "is a link; an artifact holds its files, not links to them");
        }
    }

    /// <summary>Rejects files besides the artifact's own. Each member of an ensemble is an artifact, which is checked separately.</summary>
    private static void CheckNoOtherFiles(string folder, string[] contents, IReadOnlyList<EnsembleMember> members)
    {
        string[] apart = [.. members.Select(member => PathOf(member.Name))];
        string[] own = [ManifestFile, DigestFile, .. contents, "golden", .. apart, .. apart.Take(1).Select(_ => MembersFolder)];
        var present = new DirectoryInfo(folder).EnumerateFileSystemInfos("*", new EnumerationOptions { AttributesToSkip = 0, RecurseSubdirectories = true })
            .Select(one => Path.GetRelativePath(folder, one.FullName).Replace('\\', '/'))
            .Where(path => !apart.Any(member => path.StartsWith(member + "/", StringComparison.Ordinal)));
        if (present.Except(own).Order(StringComparer.Ordinal).FirstOrDefault() is { } unknown)
            throw ArtifactError.Of(unknown, "does not belong to the artifact");
    }

    private static string ComputeSha256(byte[] data) => Convert.ToHexString(SHA256.HashData(data)).ToLowerInvariant();
}
