namespace Quantra.Client;

/// <summary>
/// Compares the versions of a model and changes its champion, by the evidence of the server's ledger. Get it from
/// <c>ModelAdminClient.Lifecycle</c>.
/// </summary>
/// <remarks>
/// Thread-safe. Calls are never retried, and the server runs one after the other, which may take minutes. Every call may throw
/// <see cref="QuantraException"/>, with the reason <see cref="QuantraReason.NoLedger"/> if the server has no ledger, and
/// <see cref="OperationCanceledException"/> if its token was cancelled.
/// </remarks>
public interface IModelLifecycle
{
    /// <summary>Compares two versions on the days that neither has seen in training.</summary>
    /// <param name="champion">The version to replace: "NAME", "NAME@VERSION" or "NAME@ALIAS".</param>
    /// <param name="challenger">The version to replace it.</param>
    /// <param name="firstSession">First decision day; null = all days that neither has seen.</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The decision and its numbers.</returns>
    /// <exception cref="QuantraException">The versions cannot be compared; see its Reason.</exception>
    Task<ModelComparison> CompareAsync(
        ModelReference champion,
        ModelReference challenger,
        DateOnly? firstSession = null,
        CancellationToken cancellationToken = default);

    /// <summary>Makes a version the champion, and serves it, if it passes the gates. Otherwise nothing changes.</summary>
    /// <param name="version">"NAME@VERSION".</param>
    /// <param name="reason">Why, for the history; not empty.</param>
    /// <param name="overrideGates">Names of gates that may fail; null = none.</param>
    /// <param name="cancellationToken">Cancels the call, which does not undo a change that has been made.</param>
    /// <returns>Whether it is the champion now, and the gates.</returns>
    /// <exception cref="QuantraException">The request was rejected. A gate that failed is no exception.</exception>
    Task<PromotionResult> PromoteAsync(
        ModelReference version,
        string reason,
        IReadOnlyList<string>? overrideGates = null,
        CancellationToken cancellationToken = default);

    /// <summary>Makes the previous champion the champion again, and serves it.</summary>
    /// <param name="model">Name of the model.</param>
    /// <param name="reason">Why, for the history; not empty.</param>
    /// <param name="champion">Version to replace, so that a repeated call does not go back further; null = any.</param>
    /// <param name="cancellationToken">Cancels the call, which does not undo a change that has been made.</param>
    /// <returns>The champion now, and the one before.</returns>
    /// <exception cref="QuantraException">There is no previous champion, or it cannot be served; see its Reason.</exception>
    Task<RollbackResult> RollBackAsync(string model, string reason, int? champion = null, CancellationToken cancellationToken = default);
}
