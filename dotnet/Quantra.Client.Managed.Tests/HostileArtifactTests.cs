using System.Buffers.Binary;
using System.Text;
using System.Text.Json.Nodes;

namespace Quantra.Client.Managed.Tests;

/// <summary>Damaged and hostile artifacts end in one kind of error, which names the file.</summary>
public sealed class HostileArtifactTests
{
    private const string Weights = "weights.safetensors";

    private static readonly Dictionary<string, (Action<EditedArtifact> Change, string Message)> Cases = new()
    {
        ["a changed weight without a new digest"] = (one => Flip(one.PathOf(Weights)), $"{Weights}: its SHA-256 is not the manifest's"),
        ["a truncated file"] = (one => File.WriteAllBytes(one.PathOf(Weights), File.ReadAllBytes(one.PathOf(Weights))[..^1]), $"{Weights}: has "),
        ["a changed manifest"] = (one => File.AppendAllText(one.PathOf("manifest.json"), " "), "manifest.json: its SHA-256 is not the one in manifest.sha256"),
        ["a missing file"] = (one => File.Delete(one.PathOf("calendar.json")), "calendar.json: the file is missing"),
        ["another file"] = (one => File.WriteAllText(one.PathOf("run.py"), ""), "run.py: does not belong to the artifact"),
        ["a hidden file"] = (one => File.WriteAllText(one.PathOf(".run"), ""), ".run: does not belong to the artifact"),
        ["a link"] = (Link, $"{Weights}: is a link"),
        ["a format of the future"] = (one => one.EditManifest(manifest => manifest["format_version"] = 3), "manifest.json: format version is 3"),
        ["another format"] = (one => one.EditManifest(manifest => manifest["format"] = "onnx"), "manifest.json: format is 'onnx'"),
        ["an ensemble without members"] = (one => one.EditManifest(manifest => manifest["format"] = "quantra-ensemble"), "manifest.json: members is missing"),
        ["an unknown key"] = (one => one.EditManifest(manifest => manifest["hook"] = "x"), "manifest.json: hook is an unknown key"),
        ["an unknown kind of network"] = (one => one.EditManifest(manifest => manifest["network"]!["kind"] = "mamba"), "manifest.json: network.kind is 'mamba'"),
        ["a newer kind of network"] = (one => one.EditManifest(manifest => manifest["network"]!["kind_version"] = 9), "manifest.json: network.kind_version is 9"),
        ["other arithmetic"] = (one => one.EditManifest(manifest => manifest["network"]!["arithmetic"]!["gates"] = "other"), "manifest.json: network.arithmetic.gates "),
        ["an unknown setting of the network"] = (one => one.EditManifest(manifest => manifest["network"]!["config"]!["mode"] = 1), "manifest.json: network.config.mode is an unknown key"),
        ["an unknown normaliser"] = (one => one.EditManifest(manifest => manifest["normaliser"]!["kind"] = "rank"), "manifest.json: normaliser"),
        ["an unknown target"] = (one => one.EditManifest(manifest => manifest["target"]!["kind"] = "volume"), "manifest.json: target.kind is 'volume'"),
        ["offsets of another shape"] = (one => one.EditManifest(manifest => manifest["conformal"]!["offsets"] = new JsonArray()), "manifest.json: conformal offsets must be"),
        ["a fraction as an integer"] = (one => one.Replace("manifest.json", "\"encoder_length\": 12", "\"encoder_length\": 12.0"), "manifest.json: encoder_length is 12.0, expected an integer"),
        ["a huge encoder"] = (one => one.EditManifest(manifest => manifest["encoder_length"] = int.MaxValue), "manifest.json: encoder_length is 2147483647"),
        ["an unknown operator set"] = (one => one.Replace("features.json", "\"operator_set\": 1", "\"operator_set\": 2"), "features.json: operator_set"),
        ["an unknown operator"] = (one => one.Replace("features.json", "Log($close / Ref($close, 1))", "Exp($close / Ref($close, 1))"), "features.json: "),
        ["an unknown field"] = (one => one.Replace("features.json", "Log($close / Ref($close, 1))", "Log($vwap / Ref($close, 1))"), "features.json: "),
        ["an expression that is not canonical"] = (one => one.Replace("features.json", "Log($close / Ref($close, 1))", "Log(($close / Ref($close, 1)))"), "features.json: "),
        ["another definition of money"] = (one => one.Replace("features.json", "\"money\":", "\"Money\":"), "features.json: "),
        ["NaN"] = (one => one.Replace("manifest.json", "\"encoder_length\": 12", "\"encoder_length\": NaN"), "manifest.json: is not strict JSON"),
        ["a number beyond a double"] = (one => one.Replace("manifest.json", "\"encoder_length\": 12", "\"encoder_length\": 1e999"), "manifest.json: is not strict JSON"),
        ["a number beyond 64 bits"] = (one => one.Replace("manifest.json", "\"encoder_length\": 12", "\"encoder_length\": 99999999999999999999"), "manifest.json: is not strict JSON"),
        ["a byte order mark"] = (one => one.Edit("calendar.json", content => [0xEF, 0xBB, 0xBF, .. content]), "calendar.json: is not strict JSON"),
        ["a key twice"] = (one => one.Replace("calendar.json", "\"name\":", "\"name\": \"X\", \"name\":"), "calendar.json: is not strict JSON"),
        ["a lone surrogate"] = (one => one.Replace("calendar.json", "\"name\": \"XNYS\"", "\"name\": \"\\ud800\""), "calendar.json: is not strict JSON"),
        ["deep nesting"] = (one => one.Edit("calendar.json", _ => Encoding.UTF8.GetBytes(new string('[', 100_000))), "calendar.json: is not strict JSON"),
        ["a list instead of an object"] = (one => one.Edit("calendar.json", _ => "[]"u8.ToArray()), "calendar.json: is [], expected an object"),
        ["an unknown time zone"] = (one => one.Replace("calendar.json", "America/New_York", "Atlantis/City"), "calendar.json: time_zone is 'Atlantis/City'"),
        ["a calendar of a million years"] = (one => one.Replace("calendar.json", "\"last\": 20140630", "\"last\": 999991231"), "calendar.json: last is 999991231"),
        ["a header of 2^63 bytes"] = (one => one.Edit(Weights, content => WithLength(content, ulong.MaxValue)), $"{Weights}: its header claims 18446744073709551615 bytes"),
        ["a header beyond the file"] = (one => one.Edit(Weights, content => WithLength(content, (ulong)content.Length)), $"{Weights}: its header claims "),
        ["a file of seven bytes"] = (one => one.Edit(Weights, content => content[..7]), $"{Weights}: has 7 bytes"),
        ["overlapping arrays"] = (one => one.EditHeader(Weights, Overlap), $"{Weights}: arrays must neither overlap nor leave gaps: "),
        ["arrays beyond the file"] = (one => one.EditHeader(Weights, header => First(header)["data_offsets"] = new JsonArray(0, int.MaxValue)), $"{Weights}: array "),
        ["negative offsets"] = (one => one.EditHeader(Weights, header => First(header)["data_offsets"] = new JsonArray(-4, 0)), $"{Weights}: array "),
        ["a shape beyond the memory"] = (one => one.EditHeader(Weights, header => First(header)["shape"] = new JsonArray(int.MaxValue, int.MaxValue, int.MaxValue)), $"{Weights}: array "),
        ["an unknown type of numbers"] = (one => one.EditHeader(Weights, header => First(header)["dtype"] = "F8_E4M3"), $"{Weights}: array "),
        ["a weight of another name"] = (one => one.EditHeader(Weights, Rename), "weights.safetensors"),
        ["a weight that is not finite"] = (one => one.Edit(Weights, content => [.. content[..^4], 0, 0, 0xC0, 0x7F]), "weights.safetensors"),
        ["a golden instance of another model"] = (one => one.Edit(Weights, Shifted), "golden/arrays.safetensors: golden instance: stage units is off by"),
        ["a golden instance without a stage"] = (one => one.EditHeader("golden/arrays.safetensors", RenameStage), "golden/arrays.safetensors: golden instance: array 'stage.units' is missing"),
        ["an expected error that does not occur"] = (one => one.Replace("golden/golden.json", "\"no covariates\": \"\"", "\"no covariates\": \"INTERNAL\""), "golden/golden.json: golden instance: no covariates gives ''"),
    };

    public static TheoryData<string> Names => [.. Cases.Keys];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Theory]
    [MemberData(nameof(Names))]
    public async Task It_is_rejected_with_the_file(string name)
    {
        using var artifact = EditedArtifact.Of("gru");
        var (change, message) = Cases[name];
        change(artifact);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(artifact.Folder, Token));
        Assert.Equal((QuantraStatus.DataLoss, QuantraReason.ArtifactInvalid), (failure.Code, failure.Reason));
        Assert.StartsWith($"gru/1: {message}", failure.Message, StringComparison.Ordinal);
        Assert.Equal(("gru", "1"), (failure.Metadata["model"], failure.Metadata["version"]));
    }

    [Fact]
    public async Task A_rewritten_artifact_with_the_same_content_loads()
    {
        using var artifact = EditedArtifact.Of("gru");
        artifact.EditHeader(Weights, _ => { });
        await using var predictor = await ManagedPredictor.OpenAsync(artifact.Folder, Token);
        Assert.Equal("gru", (await predictor.GetModelAsync("gru", Token)).Name);
    }

    [Fact]
    public async Task A_universe_with_a_symbol_twice_is_rejected_with_the_symbol()
    {
        using var artifact = EditedArtifact.Of("graph");
        artifact.EditManifest(manifest => manifest["universe"]![1] = (string)manifest["universe"]![0]!);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(artifact.Folder, Token));
        Assert.Equal((QuantraReason.ArtifactInvalid, "graph/1: manifest.json: universe has AAPL twice"), (failure.Reason, failure.Message));
    }

    private static void Flip(string path)
    {
        var content = File.ReadAllBytes(path);
        content[^1] ^= 1;
        File.WriteAllBytes(path, content);
    }

    private static void Link(EditedArtifact artifact)
    {
        var moved = Path.Combine(artifact.Models, "moved");
        File.Move(artifact.PathOf(Weights), moved);
        File.CreateSymbolicLink(artifact.PathOf(Weights), moved);
    }

    private static byte[] WithLength(byte[] content, ulong length)
    {
        BinaryPrimitives.WriteUInt64LittleEndian(content, length);
        return content;
    }

    private static JsonObject First(JsonObject header) => header.Where(one => one.Key != "__metadata__").MinBy(one => (int)one.Value!["data_offsets"]![0]!).Value!.AsObject();

    /// <summary>Moves an array onto another of the same size.</summary>
    private static void Overlap(JsonObject header)
    {
        var same = header.Where(one => one.Key != "__metadata__").GroupBy(one => (int)one.Value!["data_offsets"]![1]! - (int)one.Value!["data_offsets"]![0]!).First(group => group.Count() > 1).ToList();
        same[1].Value!["data_offsets"] = same[0].Value!["data_offsets"]!.DeepClone();
    }

    private static void Rename(JsonObject header) => Rename(header, header.First(one => one.Key != "__metadata__").Key, "extra.weight");

    private static void RenameStage(JsonObject header) => Rename(header, "stage.units", "stage.other");

    private static void Rename(JsonObject header, string old, string name)
    {
        var value = header[old]!.DeepClone();
        header.Remove(old);
        header[name] = value;
    }

    /// <summary>Adds 0.01 to the last weight.</summary>
    private static byte[] Shifted(byte[] content)
    {
        var last = content.AsSpan(content.Length - 4);
        BinaryPrimitives.WriteSingleLittleEndian(last, BinaryPrimitives.ReadSingleLittleEndian(last) + 0.01f);
        return content;
    }
}
