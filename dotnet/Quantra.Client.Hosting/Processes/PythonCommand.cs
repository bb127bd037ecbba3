using System.Diagnostics;

namespace Quantra.Client.Hosting.Processes;

/// <summary>A Python command line. All three standard streams are redirected.</summary>
/// <param name="Environment">Environment whose Python runs.</param>
/// <param name="Arguments">Arguments of Python.</param>
/// <param name="Variables">Environment variables in addition to those of this process.</param>
internal sealed record PythonCommand(
    PythonEnvironment Environment,
    IReadOnlyList<string> Arguments,
    IReadOnlyDictionary<string, string> Variables)
{
    /// <summary>Unbuffered lines in UTF-8, on Windows too.</summary>
    private static readonly (string Name, string Value)[] Always = [("PYTHONUNBUFFERED", "1"), ("PYTHONUTF8", "1")];

    public ProcessStartInfo StartInfo()
    {
        var startInfo = new ProcessStartInfo(Environment.Interpreter, Arguments)
        {
            UseShellExecute = false,
            CreateNoWindow = true,
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        };
        foreach (var (name, value) in Always)
            startInfo.Environment[name] = value;
        foreach (var (name, value) in Variables)
            startInfo.Environment[name] = value;
        return startInfo;
    }
}
