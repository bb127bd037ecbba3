namespace Quantra.Client.Hosting.Processes;

/// <summary>A virtual environment in which quantra is installed.</summary>
/// <param name="Folder">Its full path.</param>
/// <param name="Interpreter">Its python.</param>
internal sealed record PythonEnvironment(string Folder, string Interpreter)
{
    private const string Marker = "pyvenv.cfg";
    private const string Packages = "quantra[cli,data,calendars]";
    private static readonly string[] Variables = ["QUANTRA_VENV", "VIRTUAL_ENV"];

    /// <summary>The command that installs the Python package in it.</summary>
    public string Installation => $"{Quoted(Interpreter)} -m pip install {Quoted(Packages)}";

    /// <summary>The environment to use.</summary>
    /// <param name="given">The caller's choice; null = the variables QUANTRA_VENV and VIRTUAL_ENV decide, or else .venv beside the program.</param>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: there is none; the message has the command that makes one.</exception>
    public static PythonEnvironment Find(string? given)
    {
        var beside = Path.Combine(AppContext.BaseDirectory, ".venv");
        var folder = given ?? Variables.Select(Environment.GetEnvironmentVariable).FirstOrDefault(path => !string.IsNullOrEmpty(path));
        if (folder is null && !Directory.Exists(beside))
        {
            throw Refusal(
                $"no Python environment was named, neither {string.Join(" nor ", Variables)} is set, and {beside} does not exist; "
                + $"make it: {Making(beside)}");
        }

        var full = Path.GetFullPath(folder ?? beside);
        var interpreter = InterpreterOf(full);
        return File.Exists(Path.Combine(full, Marker)) && File.Exists(interpreter)
            ? new PythonEnvironment(full, interpreter)
            : throw Refusal($"{full} is no virtual environment with {Marker} and a python; make it: {Making(full)}");
    }

    /// <summary>The error for an environment that cannot be used.</summary>
    public static QuantraException Refusal(string message, Exception? cause = null) =>
        new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid, message).ToException(cause);

    private static string InterpreterOf(string folder) =>
        OperatingSystem.IsWindows() ? Path.Combine(folder, "Scripts", "python.exe") : Path.Combine(folder, "bin", "python");

    /// <summary>One command that makes an environment; for Windows one that cmd and PowerShell understand alike.</summary>
    private static string Making(string folder)
    {
        if (!OperatingSystem.IsWindows())
            return $"python3 -m venv {Quoted(folder)} && {new PythonEnvironment(folder, InterpreterOf(folder)).Installation}";
        const string Steps = "import subprocess, sys, venv; venv.create(sys.argv[1], with_pip=True); "
            + "subprocess.check_call([sys.argv[2], '-m', 'pip', 'install', sys.argv[3]])";
        return $"py -3 -c {Quoted(Steps)} {Quoted(folder)} {Quoted(InterpreterOf(folder))} {Quoted(Packages)}";
    }

    /// <summary>A word of a command line, as the shells of this system read it.</summary>
    private static string Quoted(string word) =>
        OperatingSystem.IsWindows() ? $"\"{word}\"" : $"'{word.Replace("'", "'\\''", StringComparison.Ordinal)}'";
}
