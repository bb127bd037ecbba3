using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>What other programs compile against.</summary>
public sealed class PublicApiTests
{
    /// <summary>Set to anything, this environment variable lets the test write what it would compare with.</summary>
    private const string Write = "QUANTRA_WRITE_PUBLIC_API";

    [Theory]
    [InlineData(typeof(IStockPredictor))]
    [InlineData(typeof(QuantraClient))]
    [InlineData(typeof(EmbeddedPredictor))]
    public void The_public_API_is_the_one_that_is_written_down(Type member)
    {
        ArgumentNullException.ThrowIfNull(member);
        var name = member.Assembly.GetName().Name!;
        var file = Path.Combine(Doors.Repository(), "dotnet", name, "PublicApi.txt");
        var offered = PublicApi.Of(member.Assembly);
        if (Environment.GetEnvironmentVariable(Write) is not null)
            File.WriteAllText(file, string.Concat(offered.Select(line => line + "\n")));
        var written = File.ReadAllLines(file);
        var changes = offered.Except(written).Select(line => $"+ {line}").Concat(written.Except(offered).Select(line => $"- {line}"));
        var advice = $"the public API of {name} changed; if that is meant, run this test with {Write}=1:\n{string.Join("\n", changes)}";
        Assert.True(written.SequenceEqual(offered), advice);
    }
}
