using System.Text.Json;
using System.Text.RegularExpressions;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;

namespace Quantra.Client.Hosting.Tests;

/// <summary>The package's README.</summary>
public sealed partial class ReadmeTests
{
    private static readonly string Page = File.ReadAllText(PathOf("Quantra.Client.Hosting", "README.md"));

    [GeneratedRegex("^```csharp\n(.*?)^```", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex Code { get; }

    [GeneratedRegex("^```json\n(.*?)^```", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex Json { get; }

    [Fact]
    public void The_readme_code_compiles()
    {
        var compiled = Plain(File.ReadAllText(PathOf("Quantra.Client.Hosting.Tests", "ReadmeCode.cs")));
        var blocks = Code.Matches(Page).Select(block => Plain(block.Groups[1].Value)).ToArray();
        Assert.Equal(6, blocks.Length);
        Assert.All(blocks, block => Assert.Contains(block, compiled, StringComparison.Ordinal));
    }

    [Fact]
    public async Task The_readme_configuration_is_valid()
    {
        var json = Json.Match(Page).Groups[1].Value;
        Assert.Equal(JsonValueKind.Object, JsonDocument.Parse(json).RootElement.ValueKind);
        using var stream = new MemoryStream(System.Text.Encoding.UTF8.GetBytes(json));
        var section = new ConfigurationBuilder().AddJsonStream(stream).Build().GetSection("Quantra");
        await using var provider = new ServiceCollection()
            .AddQuantraClient(section)
            .AddQuantraClient(options => options.AuthorityFile = null) // the file does not exist here
            .BuildServiceProvider();
        Assert.NotNull(provider.GetRequiredService<IStockPredictor>());
    }

    private static string PathOf(string project, string file) => Path.Combine(HostingFixture.Repository(), "dotnet", project, file);

    /// <summary>Removes indentation and using directives from code.</summary>
    private static string Plain(string code) => string.Join('\n', code
        .Split('\n')
        .Select(line => line.Trim())
        .Where(line => line.Length > 0 && !line.StartsWith("using Microsoft", StringComparison.Ordinal) && !line.StartsWith("using Quantra", StringComparison.Ordinal)));
}
