using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using System.Runtime.CompilerServices;

namespace Quantra.Client.Tests;

/// <summary>Sets the culture of all threads from the environment variable QUANTRA_TEST_CULTURE, for example tr-TR.</summary>
public sealed class CultureTests
{
    private static readonly string? Asked = Environment.GetEnvironmentVariable("QUANTRA_TEST_CULTURE");

    [Fact]
    public async Task Every_thread_has_the_requested_culture()
    {
        Assert.SkipWhen(Asked is null, "QUANTRA_TEST_CULTURE names no culture");
        Assert.Equal(Asked, await Task.Run(() => CultureInfo.CurrentCulture.Name, TestContext.Current.CancellationToken));
        Assert.Equal("1,5", 1.5.ToString(CultureInfo.CurrentCulture));
    }

    [ModuleInitializer]
    [SuppressMessage("Usage", "CA2255:The 'ModuleInitializer' attribute should not be used in libraries", Justification = "this is a program")]
    internal static void Set()
    {
        if (Asked is not null)
            CultureInfo.DefaultThreadCurrentCulture = CultureInfo.DefaultThreadCurrentUICulture = CultureInfo.GetCultureInfo(Asked);
    }
}
