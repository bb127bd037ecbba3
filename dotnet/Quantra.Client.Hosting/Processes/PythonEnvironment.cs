namespace Quantra.Client.Hosting.Processes;

/// <summary>A virtual environment in which quantra is installed.</summary>
/// <param name="Folder">Full path.</param>
/// <param name="Interpreter">Its python executable.</param>
internal sealed record PythonEnvironment(string Folder, string Interpreter)
{
    private const string Marker = "pyvenv.cfg";
    private const string Packages = "quantra[cli,calendars]";
    private static readonly string[] Variables = ["QUANTRA_VENV", "VIRTUAL_ENV"];

    /// <summary>The command that installs the Python package.</summary>
    public string Installation => $"{Quote(Interpreter)} -m pip install {Quote(Packages)}";

    /// <summary>Returns the caller's choice, or else the environment of QUANTRA_VENV, VIRTUAL_ENV or .venv in the program's folder.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: no environment was found; the message has the command that creates one.</exception>
    public static PythonEnvironment Find(string? path)
    {
        var local = Path.Combine(AppContext.BaseDirectory, ".venv");
        var folder = path ?? Variables.Select(Environment.GetEnvironmentVariable).FirstOrDefault(value => !string.IsNullOrEmpty(value));
        if (folder is null && !Directory.Exists(local))
        {
            throw Refusal(
                $"no Python environment was configured, neither {string.Join(" nor ", Variables)} is set, and {local} does not exist; "
                + $"create it: {DescribeCreation(local)}");
        }

        var full = Path.GetFullPath(folder ?? local);
        var interpreter = FindInterpreter(full);
        return File.Exists(Path.Combine(full, Marker)) && File.Exists(interpreter)
            ? new PythonEnvironment(full, interpreter)
            : throw Refusal($"{full} is not a virtual environment with {Marker} and a python executable; create it: {DescribeCreation(full)}");
    }

    public static QuantraException Refusal(string message, Exception? cause = null) =>
        new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid, message).ToException(cause);

    private static string FindInterpreter(string folder) =>
        OperatingSystem.IsWindows() ? Path.Combine(folder, "Scripts", "python.exe") : Path.Combine(folder, "bin", "python");

    /// <summary>A command that creates an environment. On Windows it works in both cmd and PowerShell.</summary>
    private static string DescribeCreation(string folder)
    {
        if (!OperatingSystem.IsWindows())
            return $"python3 -m venv {Quote(folder)} && {new PythonEnvironment(folder, FindInterpreter(folder)).Installation}";
        const string Steps = "import subprocess, sys, venv; venv.create(sys.argv[1], with_pip=True); "
            + "subprocess.check_call([sys.argv[2], '-m', 'pip', 'install', sys.argv[3]])";
        return $"py -3 -c {Quote(Steps)} {Quote(folder)} {Quote(FindInterpreter(folder))} {Quote(Packages)}";
    }

    /// <summary>Quotes an argument for the shells of this system.</summary>
    private static string Quote(string word) =>
        OperatingSystem.IsWindows() ? $"\"{word}\"" : $"'{word.Replace("'", "'\\''", StringComparison.Ordinal)}'";
}
