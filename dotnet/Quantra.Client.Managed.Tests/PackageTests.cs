namespace Quantra.Client.Managed.Tests;

public sealed class PackageTests
{
    [Fact]
    public void The_package_references_only_the_framework_and_the_abstractions()
    {
        var names = typeof(ManagedPredictor).Assembly.GetReferencedAssemblies().Select(name => name.Name!);
        Assert.All(names, name => Assert.True(name.StartsWith("System", StringComparison.Ordinal) || name == "Quantra.Client.Abstractions", name));
    }
}
