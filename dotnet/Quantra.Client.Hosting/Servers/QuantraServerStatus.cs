namespace Quantra.Client.Hosting;

/// <summary>Where a server stands, and why.</summary>
public sealed record QuantraServerStatus
{
    /// <summary>Where it stands.</summary>
    public required QuantraServerState State { get; init; }

    /// <summary>Where it answers on 127.0.0.1; null = nowhere at present. Each start has another.</summary>
    public int? Port { get; init; }

    /// <summary>The process that answers; null = none at present.</summary>
    public int? ProcessId { get; init; }

    /// <summary>Of quantra in its Python environment; null = not known at present.</summary>
    public string? Version { get; init; }

    /// <summary>How often it was started again by itself since it was last started by the program.</summary>
    public int Restarts { get; init; }

    /// <summary>
    /// Why its last process ended, why it is not well, or why it has failed; null = nothing has gone wrong. Its metadata has, where
    /// they are known, "exit_code" and "stderr", the last 50 lines of the server's log.
    /// </summary>
    public QuantraError? Error { get; init; }

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "Ready on port 50051, restarts: 1".</returns>
    public override string ToString()
    {
        var port = Port is { } known ? FormattableString.Invariant($" on port {known}") : "";
        var error = Error is { } told ? $": {told.Message}" : "";
        return FormattableString.Invariant($"{State}{port}, restarts: {Restarts}{error}");
    }
}
