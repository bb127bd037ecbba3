namespace Quantra.Client.Managed.Tests;

/// <summary>Folders of models: names, versions, aliases and reload.</summary>
public sealed class RegistryTests
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task The_folder_of_one_version_is_a_model()
    {
        using var artifact = EditedArtifact.Of("gru", 7);
        await using var predictor = await ManagedPredictor.OpenAsync(artifact.Folder + Path.DirectorySeparatorChar, Token);
        var model = Assert.Single(await predictor.ListModelsAsync(Token));
        Assert.Equal(("gru", 7, true, "gru"), (model.Name, model.Version, model.IsDefault, model.Kind));
        Assert.Equal(7, (await predictor.GetModelAsync("", Token)).Version);
    }

    [Fact]
    public async Task A_name_means_the_champion_and_without_one_the_newest_version()
    {
        using var artifact = EditedArtifact.Of("gru");
        artifact.Add("delayed", "gru", 10);
        await using var newest = await ManagedPredictor.OpenAsync(artifact.Models, Token);
        Assert.Equal(10, (await newest.GetModelAsync("gru", Token)).Version);
        await File.WriteAllTextAsync(Path.Combine(artifact.Models, "gru", "aliases.json"), """{"champion": 1, "canary": 10}""", Token);
        await newest.ReloadAsync(Token);
        Assert.Equal(1, (await newest.GetModelAsync("gru", Token)).Version);
        var canary = await newest.GetModelAsync("gru@canary", Token);
        Assert.Equal((10, false), (canary.Version, canary.IsDefault));
        Assert.Equal(["canary"], canary.Aliases);
    }

    [Fact]
    public async Task A_champion_that_cannot_be_loaded_is_not_replaced_by_another_version()
    {
        using var artifact = EditedArtifact.Of("gru");
        await File.WriteAllTextAsync(Path.Combine(artifact.Models, "gru", "aliases.json"), """{"champion": 2}""", Token);
        await using var predictor = await ManagedPredictor.OpenAsync(artifact.Models, Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => predictor.GetModelAsync("gru", Token));
        Assert.Equal(QuantraReason.ModelNotFound, failure.Reason);
        Assert.Equal(1, (await predictor.GetModelAsync("gru@1", Token)).Version);
    }

    [Fact]
    public async Task A_damaged_version_is_a_problem_and_the_others_are_served()
    {
        using var artifact = EditedArtifact.Of("gru");
        artifact.Add("delayed", "delayed", 1);
        File.Delete(artifact.PathOf("calendar.json"));
        await using var predictor = await ManagedPredictor.OpenAsync(artifact.Models, Token);
        var problem = Assert.Single(predictor.Problems);
        Assert.Equal((QuantraReason.ArtifactInvalid, "gru"), (problem.Reason, problem.Metadata["model"]));
        Assert.Equal("delayed", Assert.Single(await predictor.ListModelsAsync(Token)).Name);
    }

    [Fact]
    public async Task A_reload_that_fails_keeps_the_models()
    {
        using var artifact = EditedArtifact.Of("gru");
        await using var predictor = await ManagedPredictor.OpenAsync(artifact.Folder, Token);
        File.Delete(artifact.PathOf("manifest.json"));
        await Assert.ThrowsAsync<QuantraException>(() => predictor.ReloadAsync(Token));
        Assert.Equal("gru", (await predictor.GetModelAsync("gru", Token)).Name);
    }

    [Fact]
    public async Task Only_the_versions_of_a_lock_file_are_served()
    {
        using var artifact = EditedArtifact.Of("gru");
        artifact.Add("delayed", "gru", 2);
        artifact.Add("har", "har", 1);
        var file = Path.Combine(artifact.Models, "models.lock");
        var listed = Line(artifact.Models, "gru", "1");
        await File.WriteAllTextAsync(file, $"{listed}{listed[..64]} *./har/1/manifest.json\r\n\n{Line(artifact.Models, "gru", "2").Replace("/2/", "/draft/", StringComparison.Ordinal)}{listed.Replace("gru", "gone", StringComparison.Ordinal)}", Token);
        await using var predictor = await ManagedPredictor.OpenAsync(artifact.Models, file, Token);
        await predictor.ReloadAsync(Token);
        var model = Assert.Single(await predictor.ListModelsAsync(Token));
        Assert.Equal(("gru", 1), (model.Name, model.Version));
        Assert.Collection(
            predictor.Problems,
            gone => Assert.StartsWith("gone/1: is listed in the lock file models.lock, but missing;", gone.Message, StringComparison.Ordinal),
            other => Assert.StartsWith("gru/2: manifest.json: is not listed in the lock file models.lock,", other.Message, StringComparison.Ordinal),
            changed => Assert.StartsWith("har/1: manifest.json: is not the one listed in the lock file models.lock,", changed.Message, StringComparison.Ordinal));
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(Path.Combine(artifact.Models, "har", "1"), file, Token));
        Assert.Equal((QuantraReason.ArtifactInvalid, "manifest.json"), (failure.Reason, failure.Metadata["file"]));
    }

    [Theory]
    [InlineData("", "lists no version")]
    [InlineData("DIGEST  gru/draft/manifest.json\n", "lists no version")]
    [InlineData("DIGEST  gru/1/weights.safetensors\n", "line 1 is 'aaa")]
    [InlineData("\nDIGEST  gru/1/manifest.json\nDIGEST  gru/1/manifest.json\n", "line 3 lists gru/1 again")]
    public async Task An_invalid_lock_file_is_rejected(string text, string problem)
    {
        ArgumentNullException.ThrowIfNull(text);
        using var artifact = EditedArtifact.Of("gru");
        var file = Path.Combine(artifact.Models, "models.lock");
        await File.WriteAllTextAsync(file, text.Replace("DIGEST", new string('a', 64), StringComparison.Ordinal), Token);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(artifact.Models, file, Token));
        Assert.Equal(QuantraReason.ConfigurationInvalid, failure.Reason);
        Assert.Contains(problem, failure.Message, StringComparison.Ordinal);
        await File.WriteAllBytesAsync(file, [0xff], Token);
        failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(artifact.Models, file, Token));
        Assert.Contains("is not text in UTF-8", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_folder_without_models_is_rejected()
    {
        using var artifact = EditedArtifact.Of("gru");
        foreach (var folder in new[] { Path.Combine(artifact.Models, "nothing"), artifact.PathOf("golden") })
        {
            var failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(folder, Token));
            Assert.Equal((QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid), (failure.Code, failure.Reason));
        }
    }

    [Fact]
    public async Task The_folder_of_a_models_versions_is_rejected_with_its_parent()
    {
        using var artifact = EditedArtifact.Of("gru");
        var failure = await Assert.ThrowsAsync<QuantraException>(() => ManagedPredictor.OpenAsync(Path.Combine(artifact.Models, "gru"), Token));
        Assert.EndsWith($"; did you mean {artifact.Models}?", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_disposed_predictor_rejects_calls()
    {
        var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        await predictor.DisposeAsync();
        await predictor.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => predictor.ListModelsAsync(Token));
    }

    [Fact]
    public async Task A_cancelled_call_throws_OperationCanceledException()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        using var source = new CancellationTokenSource();
        await source.CancelAsync();
        var request = RecordedRequest.Of("panel").Request();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => predictor.PredictAsync(request, source.Token));
    }

    [Fact]
    public async Task Sessions_and_streams_give_the_forecasts_of_calls()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var request = RecordedRequest.Of("panel").Request();
        var forecast = await predictor.PredictAsync(request, Token);
        await foreach (var result in ((IStockPredictor)predictor).PredictStreamAsync([request], Token))
            Assert.Equal(forecast, result.GetForecast());
        var (bars, last) = (request.Bars!, request.Bars!.Sessions.Span[^1]);
        await using var session = await ((IStockPredictor)predictor).OpenSessionAsync(new SessionRequest("plain", bars.Until(last.AddDays(-1))), Token);
        var pushed = await session.PushAsync(bars.Between(last, last), cancellationToken: Token);
        Assert.Equal(forecast, pushed.Forecast);
    }

    [Fact]
    public async Task A_symbol_has_the_same_bits_alone_and_in_a_panel()
    {
        await using var predictor = await ManagedPredictor.OpenAsync(RecordedRequest.Models, Token);
        var (one, panel) = (await predictor.PredictAsync(RecordedRequest.Of("one").Request(), Token), await predictor.PredictAsync(RecordedRequest.Of("panel").Request(), Token));
        Assert.Equal(one.Values.ToArray(), panel.Values[..one.Values.Length].ToArray());
        Assert.Equal(16, one.ForecastId.Length);
        Assert.NotEqual(one.ForecastId, panel.ForecastId);
    }

    /// <summary>The line of a lock file for a version.</summary>
    private static string Line(string models, string name, string version)
    {
        var manifest = File.ReadAllBytes(Path.Combine(models, name, version, "manifest.json"));
        return $"{Convert.ToHexString(System.Security.Cryptography.SHA256.HashData(manifest))}  {name}/{version}/manifest.json\n";
    }
}
