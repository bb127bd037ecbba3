using System.Diagnostics;

namespace Quantra.Client.Hosting.Processes;

/// <summary>What is run, with pipes on all three streams.</summary>
/// <param name="Environment">Whose python runs.</param>
/// <param name="Arguments">After python.</param>
/// <param name="Variables">Set in its environment beside those of this process.</param>
internal sealed record PythonCommand(
    PythonEnvironment Environment,
    IReadOnlyList<string> Arguments,
    IReadOnlyDictionary<string, string> Variables)
{
    /// <summary>Lines that come at once, in UTF-8 on Windows too.</summary>
    private static readonly (string Name, string Value)[] Always = [("PYTHONUNBUFFERED", "1"), ("PYTHONUTF8", "1")];

    /// <summary>As the system is told.</summary>
    public ProcessStartInfo StartInfo()
    {
        var told = new ProcessStartInfo(Environment.Interpreter, Arguments)
        {
            UseShellExecute = false,
            CreateNoWindow = true,
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        };
        foreach (var (name, value) in Always)
            told.Environment[name] = value;
        foreach (var (name, value) in Variables)
            told.Environment[name] = value;
        return told;
    }
}
