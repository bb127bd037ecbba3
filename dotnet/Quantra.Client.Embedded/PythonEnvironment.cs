namespace Quantra.Client.Embedded;

/// <summary>Finds the virtual environment whose Python is hosted.</summary>
internal static class PythonEnvironment
{
    private static readonly string[] Variables = ["QUANTRA_VENV", "VIRTUAL_ENV"];

    /// <summary>The full path of the environment's folder.</summary>
    /// <param name="given">The caller's choice; null = the environment variables decide.</param>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: none is set, or the folder is not a virtual environment.</exception>
    public static string Find(string? given)
    {
        var folder = given ?? Variables.Select(Environment.GetEnvironmentVariable).FirstOrDefault(path => !string.IsNullOrEmpty(path));
        if (folder is null)
        {
            throw Refusal("no Python environment: activate the virtual environment in which quantra is installed, set "
                + "QUANTRA_VENV to its folder, or set EmbeddedPredictorOptions.PythonEnvironment");
        }

        return File.Exists(Path.Combine(folder, "pyvenv.cfg"))
            ? Path.GetFullPath(folder)
            : throw Refusal($"{folder} is not a virtual environment: it has no pyvenv.cfg; name a folder that "
                + "'python -m venv FOLDER' created");
    }

    /// <summary>The error for an environment that cannot be used.</summary>
    public static QuantraException Refusal(string message, Exception? cause = null) =>
        new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid, message).ToException(cause);
}
