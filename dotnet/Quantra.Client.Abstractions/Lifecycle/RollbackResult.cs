namespace Quantra.Client;

/// <summary>The result of a rollback.</summary>
/// <param name="Champion">Version of the champion now.</param>
/// <param name="Previous">Version of the champion before.</param>
public sealed record RollbackResult(int Champion, int Previous)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "champion: version 1, before: version 2".</returns>
    public override string ToString() => FormattableString.Invariant($"champion: version {Champion}, before: version {Previous}");
}
