using Quantra.Client.Embedded;

namespace Quantra.Client.Tests;

/// <summary>What other programs compile against.</summary>
public sealed class PublicApiTests
{
    [Theory]
    [InlineData(typeof(QuantraClient))]
    [InlineData(typeof(EmbeddedPredictor))]
    public void The_public_API_is_the_one_that_is_written_down(Type member)
    {
        ArgumentNullException.ThrowIfNull(member);
        var name = member.Assembly.GetName().Name!;
        var written = File.ReadAllLines(Path.Combine(Doors.Repository(), "dotnet", name, "PublicApi.txt"));
        var offered = PublicApi.Of(member.Assembly);
        var changes = offered.Except(written).Select(line => $"+ {line}").Concat(written.Except(offered).Select(line => $"- {line}"));
        var advice = $"the public API of {name} changed; if that is meant, update {name}/PublicApi.txt:\n{string.Join("\n", changes)}";
        Assert.True(written.SequenceEqual(offered), advice);
    }
}
