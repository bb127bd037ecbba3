using Quantra.Client.Tests;

namespace Quantra.Client.Hosting.Tests;

/// <summary>What other programs compile against.</summary>
public sealed class PublicApiTests
{
    /// <summary>Set to anything, this environment variable lets the test write what it would compare with.</summary>
    private const string Write = "QUANTRA_WRITE_PUBLIC_API";

    [Fact]
    public void The_public_API_is_the_one_that_is_written_down()
    {
        var file = Path.Combine(Place.Repository(), "dotnet", "Quantra.Client.Hosting", "PublicApi.txt");
        var offered = PublicApi.Of(typeof(QuantraServer).Assembly);
        if (Environment.GetEnvironmentVariable(Write) is not null)
            File.WriteAllText(file, string.Concat(offered.Select(line => line + "\n")));
        var written = File.ReadAllLines(file);
        var changes = offered.Except(written).Select(line => $"+ {line}").Concat(written.Except(offered).Select(line => $"- {line}"));
        Assert.True(written.SequenceEqual(offered), $"if that is meant, run this test with {Write}=1:\n{string.Join("\n", changes)}");
    }
}
