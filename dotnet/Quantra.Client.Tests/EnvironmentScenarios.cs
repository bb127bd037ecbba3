using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>Scenarios that are possible only before Python has started in this process.</summary>
internal static class EnvironmentScenarios
{
    /// <summary>Opens predictors with environments whose Python cannot start, and returns the errors.</summary>
    public static async Task<IReadOnlyDictionary<string, QuantraException>> RefusedAsync(EmbeddedPredictorOptions options, string folder)
    {
        var home = Directory.CreateDirectory(Path.Combine(folder, "python", OperatingSystem.IsWindows() ? "" : "bin")).FullName;
        var libraries = Directory.CreateDirectory(OperatingSystem.IsWindows() ? home : Path.Combine(folder, "python", "lib")).FullName;
        foreach (var name in (string[])["python399.dll", "libpython3.99.so", "libpython3.99.dylib"])
            await File.WriteAllTextAsync(Path.Combine(libraries, name), "no library");
        var settings = new Dictionary<string, string>
        {
            ["of nowhere"] = "version = 3.11.7\n",
            ["of an old one"] = $"home = {home}\nversion_info = 3.10.4.final.0\n",
            ["without a library"] = $"home = {home}\nversion = 3.98.1\n",
            ["with a broken library"] = $"home = {home}\nversion = 3.99.1\n",
        };
        var refused = new Dictionary<string, QuantraException>();
        foreach (var (name, text) in settings)
        {
            var environment = Directory.CreateDirectory(Path.Combine(folder, name)).FullName;
            await File.WriteAllTextAsync(Path.Combine(environment, "pyvenv.cfg"), text);
            var bad = options with { PythonEnvironment = environment };
            refused[name] = await Assert.ThrowsAsync<QuantraException>(() => EmbeddedPredictor.OpenAsync(bad));
        }

        return refused;
    }

    /// <summary>Opens a predictor, cancels while Python starts, and opens another with these models.</summary>
    public static async Task<EmbeddedPredictor> OpenAfterCancellingAsync(EmbeddedPredictorOptions options, string models)
    {
        using var source = new CancellationTokenSource();
        var cancelled = EmbeddedPredictor.OpenAsync(options, source.Token);
        while (Environment.GetEnvironmentVariable("PYTHONNET_VENV") is null)
            await Task.Yield();
        var opening = EmbeddedPredictor.OpenAsync(options with { Models = models });
        await source.CancelAsync();
        var failure = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => cancelled);
        Assert.Equal((source.Token, false), (failure.CancellationToken, opening.IsCompleted));
        return await opening;
    }
}
