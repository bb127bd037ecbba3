using System.Globalization;
using System.Runtime.InteropServices;
using System.Text.RegularExpressions;

namespace Quantra.Client.Embedded;

/// <summary>Finds and loads the shared library of an environment's Python, without starting Python.</summary>
/// <remarks>
/// Python.NET keeps a library that fails to load for the lifetime of the process. This class detects problems earlier, so that another
/// environment can be tried.
/// </remarks>
internal static partial class PythonLibrary
{
    private static readonly Version Oldest = new(3, 11);

    /// <summary>Returns the path of the library.</summary>
    /// <param name="environment">Full path of a virtual environment.</param>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the library is missing, does not load, or is too old.</exception>
    public static string Find(string environment)
    {
        var settings = ReadSettings(Path.Combine(environment, "pyvenv.cfg"));
        if (!settings.TryGetValue("home", out var home) || ReadVersion(settings) is not { } version)
            throw Refusal(environment, "its pyvenv.cfg does not name the home and version of Python; recreate the environment");
        if (version < Oldest)
            throw Refusal(environment, $"it is Python {version}, but {Oldest} or newer is required");
        var library = ListCandidates(home, version).FirstOrDefault(File.Exists)
            ?? throw Refusal(environment, $"no shared library of Python {version} found near {home}; install a Python that includes one");
        Load(environment, library);
        return library;
    }

    /// <summary>Loads the library for good. On Windows this is the only way that the libraries next to it are found.</summary>
    private static void Load(string environment, string library)
    {
        try
        {
            _ = NativeLibrary.Load(library);
        }
        catch (Exception error) when (error is DllNotFoundException or BadImageFormatException)
        {
            throw PythonEnvironment.Refusal(DescribeStartProblem(environment, $"its shared library does not load: {error.Message}"), error);
        }
    }

    /// <summary>Parses lines of the form "key = value".</summary>
    private static Dictionary<string, string> ReadSettings(string file)
    {
        var settings = new Dictionary<string, string>(StringComparer.OrdinalIgnoreCase);
        foreach (var line in File.ReadLines(file))
        {
            if (line.Split('=', 2, StringSplitOptions.TrimEntries) is [var key, var value])
                settings[key] = value;
        }

        return settings;
    }

    /// <summary>Returns the major and minor version. venv writes it as version, other tools as version_info.</summary>
    private static Version? ReadVersion(Dictionary<string, string> settings)
    {
        var found = Leading().Match(settings.GetValueOrDefault("version") ?? settings.GetValueOrDefault("version_info") ?? "");
        return found.Success ? Version.Parse(found.Value) : null;
    }

    /// <summary>Lists possible paths of the library, given the folder of the python executable.</summary>
    private static IEnumerable<string> ListCandidates(string home, Version version)
    {
        if (OperatingSystem.IsWindows())
            return [Path.Combine(home, string.Create(CultureInfo.InvariantCulture, $"python{version.Major}{version.Minor}.dll"))];
        var name = $"libpython{version}.{(OperatingSystem.IsMacOS() ? "dylib" : "so")}";
        var machine = RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? "aarch64" : "x86_64";
        string[] folders = ["lib64", "lib", $"lib/{machine}-linux-gnu"]; // the last is Debian's, where only development packages have the bare .so
        return folders.SelectMany(folder => new[] { name, $"{name}.1.0" }.Select(file => Path.Combine(home, "..", folder, file)));
    }

    private static QuantraException Refusal(string environment, string problem) =>
        PythonEnvironment.Refusal(DescribeStartProblem(environment, problem));

    private static string DescribeStartProblem(string environment, string problem) => $"the Python of {environment} does not start: {problem}";

    [GeneratedRegex(@"^\d+\.\d+")]
    private static partial Regex Leading();
}
