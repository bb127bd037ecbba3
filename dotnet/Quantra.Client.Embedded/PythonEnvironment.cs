namespace Quantra.Client.Embedded;

/// <summary>Finds the virtual environment of the hosted Python.</summary>
internal static class PythonEnvironment
{
    private static readonly string[] Variables = ["QUANTRA_VENV", "VIRTUAL_ENV"];

    /// <summary>Returns the full path of the environment: the caller's choice, or that of the environment variables.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: none is set, or the folder is not a virtual environment.</exception>
    public static string Find(string? path)
    {
        var folder = path ?? Variables.Select(Environment.GetEnvironmentVariable).FirstOrDefault(value => !string.IsNullOrEmpty(value));
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

    public static QuantraException Refusal(string message, Exception? cause = null) =>
        new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid, message).ToException(cause);
}
