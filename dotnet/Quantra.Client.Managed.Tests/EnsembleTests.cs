using System.Text.Json.Nodes;

namespace Quantra.Client.Managed.Tests;

/// <summary>Ensembles: damaged ones are rejected with the name of the member, and a joint forecast combines the members'.</summary>
public sealed class EnsembleTests
{
    private const string Weights = "weights.safetensors";

    private static readonly Dictionary<string, (Action<EditedArtifact> Change, string Message)> Cases = new()
    {
        ["a changed weight of a member"] = (one => File.WriteAllBytes(one.PathOf($"members/covariates/{Weights}"), []), $"members/covariates/{Weights}: has 0 bytes"),
        ["a member that computes something else"] = (one => one.EditMember("fitted", member => member.EditManifest(manifest => manifest["conformal"]!["offsets"]![0]![0] = -0.5)), "members/fitted/golden/arrays.safetensors: golden instance: stage values is off by"),
        ["a missing member"] = (one => Directory.Delete(one.PathOf("members/fitted"), recursive: true), "members/fitted: the member is missing"),
        ["another artifact as member"] = (Swap, "members/fitted/manifest.json: its SHA-256 is not the one in the ensemble's manifest.json"),
        ["a member that is a link"] = (Link, "members/fitted: is a link"),
        ["a file of a member that does not belong to it"] = (one => File.WriteAllText(one.PathOf("members/fitted/run.py"), ""), "members/fitted/run.py: does not belong to the artifact"),
        ["a folder besides the members"] = (one => Directory.CreateDirectory(one.PathOf("members/other")), "members/other: does not belong to the artifact"),
        ["a member outside of the folder"] = (one => one.EditManifest(manifest => manifest["members"]![0]!["name"] = "../fitted"), "manifest.json: members[0].name is '../fitted'"),
        ["a member twice"] = (one => one.EditManifest(manifest => manifest["members"]![1]!["name"] = "fitted"), "manifest.json: members[1].name is 'fitted', the name of an earlier member"),
        ["no members"] = (one => one.EditManifest(manifest => manifest["members"] = new JsonArray()), "manifest.json: members has 0 entries"),
        ["weights with another sum"] = (one => one.EditManifest(manifest => manifest["weights"]![0]![1] = 0.6), "manifest.json: weights must be 0 or more and have a sum of 1"),
        ["a negative weight"] = (one => one.EditManifest(manifest => (manifest["weights"]![0]![1], manifest["weights"]![1]![1]) = (-0.5, 1.5)), "manifest.json: weights must be 0 or more and have a sum of 1"),
        ["weights of too few quantiles"] = (one => one.EditManifest(manifest => manifest["weights"]![0]!.AsArray().RemoveAt(0)), "manifest.json: weights must be 2 rows of 3 numbers"),
        ["other rules of combination"] = (one => one.EditManifest(manifest => manifest["combination"]!["scores"] = "the best"), "manifest.json: combination.scores is not this program's"),
        ["an unknown rule"] = (one => one.EditManifest(manifest => manifest["combination"]!["gate"] = "x"), "manifest.json: combination.gate is an unknown key"),
        ["an unknown key"] = (one => one.EditManifest(manifest => manifest["hook"] = "x"), "manifest.json: hook is an unknown key"),
        ["another target than the members'"] = (one => one.EditManifest(manifest => manifest["target"]!["horizons"]![1] = 6), "manifest.json: the target of the ensemble is log-return with lag 0 over 1, 6 days, that of fitted is "),
        ["another calendar than the members'"] = (one => one.EditManifest(manifest => manifest["calendar"] = "XLON"), "manifest.json: the calendar of the ensemble is XLON"),
        ["other offsets than recorded"] = (one => one.EditManifest(manifest => manifest["conformal"]!["offsets"]![0]![0] = -0.5), "golden/arrays.safetensors: golden instance: stage values is off by"),
        ["other weights than recorded"] = (one => one.EditManifest(manifest => (manifest["weights"]![0]![0], manifest["weights"]![1]![0]) = (0.1, 0.9)), "golden/arrays.safetensors: golden instance: stage values is off by"),
    };

    public static TheoryData<string> Names => [.. Cases.Keys];

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Theory]
    [MemberData(nameof(Names))]
    public async Task It_is_rejected_with_the_member(string name)
    {
        using var artifact = EditedArtifact.Of("weighted");
        var (change, message) = Cases[name];
        change(artifact);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(artifact.Folder, Token));
        Assert.Equal(QuantraReason.ArtifactInvalid, failure.Reason);
        Assert.StartsWith($"weighted/1: {message}", failure.Message, StringComparison.Ordinal);
        var path = message.Split(':')[0];
        Assert.Equal(path, failure.Metadata["file"]);
    }

    [Fact]
    public async Task Windows_are_rejected_if_the_members_read_different_ones()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var window = new FeatureWindow
        {
            Symbols = ["AAPL"],
            EncoderLength = 12,
            FutureLength = 5,
            Observed = new float[12],
            Location = new double[1],
            Scale = new double[1],
            SchemaHash = "",
        };
        var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.PredictAsync(new PredictionRequest("weighted", window), Token));
        Assert.Equal(QuantraReason.FeatureMismatch, failure.Reason);
    }

    [Fact]
    public async Task Its_bits_do_not_depend_on_other_symbols()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var request = RecordedRequest.Of("ensemble").Request();
        var (one, panel) = (await predictor.PredictAsync(new PredictionRequest("ensemble", request.Bars!.Select("AAPL")), Token), await predictor.PredictAsync(request, Token));
        Assert.Equal(one.Values.ToArray(), panel.Values[..one.Values.Length].ToArray());
        Assert.NotEqual(one.ForecastId, panel.ForecastId);
    }

    private static void Swap(EditedArtifact artifact)
    {
        var (other, aside) = (artifact.PathOf("members/covariates"), artifact.PathOf("members/aside"));
        Directory.Move(artifact.PathOf("members/fitted"), aside);
        Directory.Move(other, artifact.PathOf("members/fitted"));
        Directory.Move(aside, other);
    }

    private static void Link(EditedArtifact artifact)
    {
        var moved = Path.Combine(artifact.Models, "moved");
        Directory.Move(artifact.PathOf("members/fitted"), moved);
        Directory.CreateSymbolicLink(artifact.PathOf("members/fitted"), moved);
    }
}
