namespace Quantra.Client;

/// <summary>The lamps of a model version.</summary>
/// <param name="Model">Name of the model.</param>
/// <param name="Version">Version of the model.</param>
/// <param name="IsChampion">Whether it is the champion now.</param>
/// <param name="Lamp">Red or amber if any test is; green if every test of coverage that is too low is green.</param>
/// <param name="Tests">The newest result of each test.</param>
public sealed record ModelHealth(string Model, int Version, bool IsChampion, Lamp Lamp, IReadOnlyList<TestHealth> Tests)
{
    /// <inheritdoc/>
    public bool Equals(ModelHealth? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@1, champion: Green, 6 tests".</returns>
    public override string ToString() =>
        FormattableString.Invariant($"{Model}@{Version}{(IsChampion ? ", champion" : "")}: {Lamp}, {MessageFormat.Count(Tests.Count, "test")}");

    private object?[] Parts() =>
    [
        Model,
        Version,
        IsChampion,
        Lamp,
        ValueEquality.Of(Tests),
    ];
}
