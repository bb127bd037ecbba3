using System.Globalization;
using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Builds the command line of a server.</summary>
internal static class ServerCommand
{
    /// <summary>Passes the token to the server. A command line would be visible to other users of the machine.</summary>
    private const string TokenVariable = "QUANTRA_TOKEN";

    /// <summary>Flags that this class sets, and flags that would keep the clients from connecting.</summary>
    private static readonly string[] Reserved =
    [
        "--models", "--listen", "--parent-watch", "--json", "--device", "--threads", "--max-batch-rows", "--tls-cert", "--tls-key",
        "--tls-client-ca",
    ];

    /// <summary>Lists the problems of the options.</summary>
    public static IReadOnlyList<string> Validate(QuantraServerOptions options)
    {
        var problems = new List<string>();
        if (string.IsNullOrWhiteSpace(options.Models))
            problems.Add("Models is missing; set it to the folder of NAME/VERSION artifacts");
        if (options.Device is null)
            problems.Add("Device is null; set it to auto, cpu, cuda or cuda:N");
        if (options.Arguments.Any(argument => argument is null))
            problems.Add("Arguments contains null");
        problems.AddRange(options.Arguments
            .OfType<string>()
            .Select(argument => argument.Split('=')[0])
            .Where(Reserved.Contains)
            .Select(flag => $"Arguments contains {flag}, which has its own property or would keep clients from connecting; remove it"));
        return problems;
    }

    /// <summary>Builds the command.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: no Python environment was found.</exception>
    public static PythonCommand Create(QuantraServerOptions options, string token) => new(
        PythonEnvironment.Find(options.PythonEnvironment),
        [.. ServeArguments(Path.GetFullPath(options.Models)), .. ComputeArguments(options), .. options.Arguments],
        new Dictionary<string, string>(options.Environment) { [TokenVariable] = token });

    /// <summary>
    /// <c>quantra serve</c>, which needs only the core packages in this form. With -P, Python ignores a folder named predictor in the current
    /// folder.
    /// </summary>
    private static string[] ServeArguments(string models) =>
        ["-P", "-m", "predictor.server", "--models", models, "--listen", "127.0.0.1:0", "--parent-watch", "--json"];

    private static string[] ComputeArguments(QuantraServerOptions options) =>
    [
        "--device", options.Device,
        "--threads", options.Threads.ToString(CultureInfo.InvariantCulture),
        "--max-batch-rows", options.MaxBatchRows.ToString(CultureInfo.InvariantCulture),
    ];
}
