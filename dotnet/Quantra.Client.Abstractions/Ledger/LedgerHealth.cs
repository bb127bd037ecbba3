namespace Quantra.Client;

/// <summary>The health of the models in a ledger.</summary>
/// <param name="Models">One entry per model version.</param>
/// <param name="LastSession">The newest session with a bar; null = no bars.</param>
public sealed record LedgerHealth(IReadOnlyList<ModelHealth> Models, DateOnly? LastSession)
{
    /// <inheritdoc/>
    public bool Equals(LedgerHealth? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "2 models as of 2013-03-08".</returns>
    public override string ToString() => $"{MessageFormat.Count(Models.Count, "model")}{MessageFormat.AsOf(LastSession)}";

    private object?[] Parts() =>
    [
        ValueEquality.Of(Models),
        LastSession,
    ];
}
