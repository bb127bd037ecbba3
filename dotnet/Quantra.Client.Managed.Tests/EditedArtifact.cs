using System.Buffers.Binary;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json.Nodes;

namespace Quantra.Client.Managed.Tests;

/// <summary>A copy of a committed artifact that a test may change.</summary>
internal sealed class EditedArtifact : IDisposable
{
    private readonly string _root;

    private EditedArtifact(string name, int version)
    {
        _root = Directory.CreateTempSubdirectory("quantra-").FullName;
        Folder = Path.Combine(_root, name, version.ToString(System.Globalization.CultureInfo.InvariantCulture));
        Copy(name, Folder);
    }

    private EditedArtifact(EditedArtifact ensemble, string member) => (_root, Folder) = (ensemble._root, Path.Combine(ensemble.Folder, "members", member));

    /// <summary>Folder of models.</summary>
    public string Models => _root;

    /// <summary>Folder of the version.</summary>
    public string Folder { get; }

    public static EditedArtifact Of(string name, int version = 1) => new(name, version);

    /// <summary>Adds a copy of a committed artifact as another version.</summary>
    public void Add(string source, string name, int version) => Copy(source, Path.Combine(_root, name, $"{version}"));

    /// <summary>Changes a member of an ensemble, and keeps all digests valid.</summary>
    public void EditMember(string name, Action<EditedArtifact> change)
    {
        var member = new EditedArtifact(this, name);
        change(member);
        EditManifest(manifest => manifest["members"]!.AsArray().Single(one => (string)one!["name"]! == name)!["manifest_sha256"] = Hash(File.ReadAllBytes(member.PathOf("manifest.json"))));
    }

    public string PathOf(string file) => Path.Combine(Folder, file);

    /// <summary>Changes bytes of a file, and keeps all digests valid.</summary>
    public void Edit(string file, Func<byte[], byte[]> change)
    {
        var content = change(File.ReadAllBytes(PathOf(file)));
        File.WriteAllBytes(PathOf(file), content);
        if (file == "manifest.json")
        {
            File.WriteAllText(PathOf("manifest.sha256"), $"{Hash(content)}  manifest.json\n");
            return;
        }

        EditManifest(manifest =>
        {
            manifest["files"]![file]!["bytes"] = content.Length;
            manifest["files"]![file]!["sha256"] = Hash(content);
            if (file == "features.json")
                manifest["schema_hash"] = Hash(content);
        });
    }

    /// <summary>Replaces text of a file, which must occur in it.</summary>
    public void Replace(string file, string old, string text) => Edit(file, content =>
    {
        var whole = Encoding.UTF8.GetString(content);
        Assert.Contains(old, whole, StringComparison.Ordinal);
        return Encoding.UTF8.GetBytes(whole.Replace(old, text, StringComparison.Ordinal));
    });

    /// <summary>Changes the header of a safetensors file.</summary>
    public void EditHeader(string file, Action<JsonObject> change) => Edit(file, content =>
    {
        var length = (int)BinaryPrimitives.ReadInt64LittleEndian(content);
        var header = JsonNode.Parse(content.AsSpan(8, length))!.AsObject();
        change(header);
        var text = Encoding.UTF8.GetBytes(header.ToJsonString());
        var size = new byte[8];
        BinaryPrimitives.WriteInt64LittleEndian(size, text.Length);
        return [.. size, .. text, .. content.AsSpan(8 + length)];
    });

    public void EditManifest(Action<JsonObject> change) => Edit("manifest.json", content =>
    {
        var manifest = JsonNode.Parse(content)!.AsObject();
        change(manifest);
        return Encoding.UTF8.GetBytes(manifest.ToJsonString());
    });

    public void Dispose() => Directory.Delete(_root, recursive: true);

    private static string Hash(byte[] content) => Convert.ToHexStringLower(SHA256.HashData(content));

    private static void Copy(string name, string to)
    {
        var from = Path.Combine(RecordedRequest.Models, name, "1");
        foreach (var file in Directory.EnumerateFiles(from, "*", SearchOption.AllDirectories))
        {
            var target = Path.Combine(to, Path.GetRelativePath(from, file));
            Directory.CreateDirectory(Path.GetDirectoryName(target)!);
            File.Copy(file, target);
        }
    }
}
