namespace Quantra.Client.Hosting;

/// <summary>Status of a supervised server.</summary>
public sealed record QuantraServerStatus
{
    /// <summary>State of the server.</summary>
    public required QuantraServerState State { get; init; }

    /// <summary>Port on 127.0.0.1; null = none at present. It changes with each start.</summary>
    public int? Port { get; init; }

    /// <summary>Port of the admin calls on 127.0.0.1; null = none at present, or the server does not accept them.</summary>
    public int? AdminPort { get; init; }

    /// <summary>Process of the server; null = none at present.</summary>
    public int? ProcessId { get; init; }

    /// <summary>Version of quantra in the Python environment; null = unknown at present.</summary>
    public string? Version { get; init; }

    /// <summary>Automatic restarts since the program started the server.</summary>
    public int Restarts { get; init; }

    /// <summary>
    /// Why the last process ended, why the server is unhealthy, or why it has failed; null = no problem. If known, the metadata have
    /// "exit_code" and "stderr", the last 50 lines of the server's log.
    /// </summary>
    public QuantraError? Error { get; init; }

    /// <summary>Formats the status as one line, the same in every culture.</summary>
    /// <returns>For example "Ready on port 50051, restarts: 1".</returns>
    public override string ToString()
    {
        var port = Port is { } known ? FormattableString.Invariant($" on port {known}") : "";
        var error = Error is { } present ? $": {present.Message}" : "";
        return FormattableString.Invariant($"{State}{port}, restarts: {Restarts}{error}");
    }
}
