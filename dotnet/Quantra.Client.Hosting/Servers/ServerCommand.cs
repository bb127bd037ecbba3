using System.Globalization;
using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>How a server's process is started.</summary>
internal static class ServerCommand
{
    /// <summary>The token that it asks for, as its process learns it: a command line could be read by other users of the machine.</summary>
    private const string TokenVariable = "QUANTRA_TOKEN";

    /// <summary>Flags that are set here, and those by which clients could not find or reach it.</summary>
    private static readonly string[] Reserved =
    [
        "--models", "--listen", "--parent-watch", "--json", "--device", "--threads", "--max-batch-rows", "--tls-cert", "--tls-key",
        "--tls-client-ca",
    ];

    /// <summary>What is wrong with options, however they came about; none if nothing is.</summary>
    public static IReadOnlyList<string> Problems(QuantraServerOptions options)
    {
        var problems = new List<string>();
        if (string.IsNullOrWhiteSpace(options.Models))
            problems.Add("Models is missing; name the folder of NAME/VERSION artifacts");
        if (options.Device is null)
            problems.Add("Device is null; write auto, cpu, cuda or cuda:N");
        if (options.Arguments.Any(one => one is null))
            problems.Add("Arguments has null among its texts");
        problems.AddRange(options.Arguments
            .OfType<string>()
            .Select(one => one.Split('=')[0])
            .Where(Reserved.Contains)
            .Select(flag => $"Arguments has {flag}, which has a setting of its own, or would keep clients away; leave it out"));
        return problems;
    }

    /// <summary>The command of a server with these options.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: there is no Python environment.</exception>
    public static PythonCommand Of(QuantraServerOptions options, string token) => new(
        PythonEnvironment.Find(options.PythonEnvironment),
        [.. Serve(Path.GetFullPath(options.Models)), .. Computation(options), .. options.Arguments],
        new Dictionary<string, string>(options.Environment) { [TokenVariable] = token });

    /// <summary>
    /// <c>quantra serve</c>, as the core packages alone have it. Without -P, a folder named predictor in the current one would be taken
    /// for ours.
    /// </summary>
    private static string[] Serve(string models) =>
        ["-P", "-m", "predictor.server", "--models", models, "--listen", "127.0.0.1:0", "--parent-watch", "--json"];

    private static string[] Computation(QuantraServerOptions options) =>
    [
        "--device", options.Device,
        "--threads", options.Threads.ToString(CultureInfo.InvariantCulture),
        "--max-batch-rows", options.MaxBatchRows.ToString(CultureInfo.InvariantCulture),
    ];
}
