using System.Text.RegularExpressions;

namespace Quantra.Client.Tests;

/// <summary>Most users run Windows, where these tests may never have run: code without an OS check must not use Unix APIs.</summary>
/// <remarks>Analyzers already cover APIs that .NET marks as unsupported on Windows (CA1416).</remarks>
public sealed partial class PortabilityTests
{
    public static TheoryData<string> Sources
    {
        get
        {
            var dotnet = Path.Combine(PredictorFixture.Repository(), "dotnet");
            var folders = Directory.EnumerateDirectories(dotnet, "Quantra.Client*").Where(folder => !folder.EndsWith(".Tests", StringComparison.Ordinal));
            var files = folders.Append(Path.Combine(dotnet, "Wire")).SelectMany(folder => Directory.EnumerateFiles(folder, "*.cs", SearchOption.AllDirectories));
            return [.. files.Select(file => Path.GetRelativePath(dotnet, file)).Where(file => !Generated().IsMatch(file))];
        }
    }

    [Theory]
    [MemberData(nameof(Sources))]
    public void Code_without_an_OS_check_calls_no_Unix_API(string file) =>
        Assert.Empty(Unguarded(File.ReadAllText(Path.Combine(PredictorFixture.Repository(), "dotnet", file))));

    [Theory]
    [InlineData("[DllImport(\"libc\")]")]
    [InlineData("Process.Start(\"kill\", [\"-STOP\", pid]);")]
    [InlineData("Process.Start(new ProcessStartInfo(\"chmod\"));")]
    [InlineData("File.SetUnixFileMode(path, UnixFileMode.UserRead);")]
    [InlineData("using var signal = PosixSignalRegistration.Create(PosixSignal.SIGTERM, Stop);")]
    [InlineData("var path = \"/tmp/quantra.sock\";")]
    [InlineData("var path = $\"/proc/{pid}/status\";")]
    [InlineData("var home = Environment.GetEnvironmentVariable(\"HOME\");")]
    [InlineData("var python = Path.Combine(venv, \"bin\", \"python\");")]
    public void The_search_finds_its_patterns(string line)
    {
        var member = $"private static void Do()\n{{\n    {line}\n}}\n";
        Assert.Single(Unguarded(member));
        Assert.Empty(Unguarded(member.Replace("{\n", "{\n    if (OperatingSystem.IsWindows())\n        return;\n", StringComparison.Ordinal)));
        Assert.Single(Unguarded("if (OperatingSystem.IsWindows())\n    return;\n\n" + member));
    }

    /// <summary>Finds lines with a Unix API in members without an OS check. Empty lines separate members.</summary>
    private static IEnumerable<string> Unguarded(string source) => source
        .ReplaceLineEndings("\n")
        .Split("\n\n")
        .Where(member => !member.Contains("OperatingSystem.Is", StringComparison.Ordinal))
        .SelectMany(member => member.Split('\n'))
        .Where(line => !line.TrimStart().StartsWith("//", StringComparison.Ordinal) && OfUnix().IsMatch(line));

    [GeneratedRegex("""
        DllImport|LibraryImport|UnixFileMode|PosixSignal|Mono\.Unix|"libc|"(kill|sh|bash|chmod|ln|ps)"|"HOME"|"bin"|"/(bin|dev|etc|home|proc|run|tmp|usr|var)\b
        """)]
    private static partial Regex OfUnix();

    [GeneratedRegex(@"[\\/](obj|bin)[\\/]")]
    private static partial Regex Generated();
}
