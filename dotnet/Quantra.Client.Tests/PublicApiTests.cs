using System.Reflection;
using System.Runtime.Versioning;
using Quantra.Client.Embedded;
using Quantra.Client.Hosting;
using Quantra.Client.Managed;
using Quantra.Client.Testing;

namespace Quantra.Client.Tests;

/// <summary>Compares the public API with the recorded files.</summary>
public sealed class PublicApiTests
{
    /// <summary>If this environment variable is set, the test writes the files instead.</summary>
    private const string Write = "QUANTRA_WRITE_PUBLIC_API";

    /// <summary>Target framework of the tested libraries.</summary>
    private static string Framework
    {
        get
        {
            var named = typeof(IStockPredictor).Assembly.GetCustomAttribute<TargetFrameworkAttribute>()!.FrameworkName;
            return FormattableString.Invariant($"net{new FrameworkName(named).Version}");
        }
    }

    [Theory]
    [InlineData(typeof(IStockPredictor))]
    [InlineData(typeof(QuantraClient))]
    [InlineData(typeof(QuantraServer))]
    [InlineData(typeof(FakeStockPredictor))]
    [InlineData(typeof(EmbeddedPredictor))]
    [InlineData(typeof(ManagedPredictor))]
    public void The_public_API_equals_the_recorded_one(Type member)
    {
        ArgumentNullException.ThrowIfNull(member);
        var name = member.Assembly.GetName().Name!;
        var file = Path.Combine(PredictorFixture.Repository(), "dotnet", name, $"PublicApi.{Framework}.txt");
        var offered = PublicApi.Of(member.Assembly);
        if (Environment.GetEnvironmentVariable(Write) is not null)
            File.WriteAllText(file, string.Concat(offered.Select(line => line + "\n")));
        var written = File.ReadAllLines(file);
        var changes = offered.Except(written).Select(line => $"+ {line}").Concat(written.Except(offered).Select(line => $"- {line}"));
        var advice = $"the public API of {name} for {Framework} changed; if that is meant, run this test with {Write}=1, for each framework:\n{string.Join("\n", changes)}";
        Assert.True(written.SequenceEqual(offered), advice);
    }
}
