using System.Globalization;
using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Builds the command line of a server.</summary>
internal static class ServerCommand
{
    /// <summary>Passes the token to the server. A command line would be visible to other users of the machine.</summary>
    private const string TokenVariable = "QUANTRA_TOKEN";

    private const string AdminTokenVariable = "QUANTRA_ADMIN_TOKEN";

    private const string AnyPort = "127.0.0.1:0";

    /// <summary>Flags that this class sets, and flags that would keep the clients from connecting.</summary>
    private static readonly string[] Reserved =
    [
        "--models", "--listen", "--parent-watch", "--json", "--device", "--threads", "--max-batch-rows", "--ledger", "--admin-listen",
        "--tls-cert", "--tls-key", "--tls-client-ca",
    ];

    /// <summary>Lists the problems of the options.</summary>
    public static IReadOnlyList<string> Validate(QuantraServerOptions options)
    {
        var problems = new List<string>();
        if (string.IsNullOrWhiteSpace(options.Models))
            problems.Add("Models is missing; set it to the folder of NAME/VERSION artifacts");
        if (options.Ledger is { } ledger && string.IsNullOrWhiteSpace(ledger))
            problems.Add("Ledger is empty; set it to a file, or leave it out");
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
    public static PythonCommand Create(QuantraServerOptions options, ServerTokens tokens) => new(
        PythonEnvironment.Find(options.PythonEnvironment),
        [.. FindProgram(options), .. ServeArguments(options), .. ListLedgerArguments(options), .. ComputeArguments(options), .. options.Arguments],
        new Dictionary<string, string>(options.Environment)
        {
            [TokenVariable] = tokens.Calls,
            [AdminTokenVariable] = options.AcceptsAdminCalls ? tokens.Admin : "",
        });

    /// <summary>
    /// <c>quantra serve</c>. Without admin calls, it needs only the core packages in another form. With -P, Python ignores a folder named
    /// predictor in the current folder.
    /// </summary>
    private static string[] FindProgram(QuantraServerOptions options) =>
        options.AcceptsAdminCalls ? ["-P", "-m", "quantra", "serve", "--admin-listen", AnyPort] : ["-P", "-m", "predictor.server"];

    private static string[] ServeArguments(QuantraServerOptions options) =>
        ["--models", Path.GetFullPath(options.Models), "--listen", AnyPort, "--parent-watch", "--json"];

    private static string[] ListLedgerArguments(QuantraServerOptions options) => options.Ledger is not { } ledger
        ? []
        : ["--ledger", ledger.Contains("://", StringComparison.Ordinal) ? ledger : Path.GetFullPath(ledger)];

    private static string[] ComputeArguments(QuantraServerOptions options) =>
    [
        "--device", options.Device,
        "--threads", options.Threads.ToString(CultureInfo.InvariantCulture),
        "--max-batch-rows", options.MaxBatchRows.ToString(CultureInfo.InvariantCulture),
    ];
}
