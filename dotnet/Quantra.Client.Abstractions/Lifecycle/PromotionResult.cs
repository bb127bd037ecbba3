namespace Quantra.Client;

/// <summary>The result of a promotion.</summary>
/// <param name="IsPromoted">Whether the version is the champion now.</param>
/// <param name="Gates">All conditions; empty if the version was the champion already.</param>
/// <param name="Champion">Version of the champion now; null = none.</param>
public sealed record PromotionResult(bool IsPromoted, IReadOnlyList<GateResult> Gates, int? Champion)
{
    /// <inheritdoc/>
    public bool Equals(PromotionResult? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "not promoted; champion: version 1; failed: audit, shadow".</returns>
    public override string ToString()
    {
        var failed = string.Join(", ", Gates.Where(gate => !gate.IsPassed).Select(gate => gate.Name));
        var champion = Champion is { } version ? FormattableString.Invariant($"version {version}") : "none";
        return $"{(IsPromoted ? "promoted" : "not promoted")}; champion: {champion}{(failed.Length > 0 ? $"; failed: {failed}" : "")}";
    }

    private object?[] Parts() =>
    [
        IsPromoted,
        ValueEquality.Of(Gates),
        Champion,
    ];
}
