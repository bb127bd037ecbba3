namespace Quantra.Client;

/// <summary>The result of loading a model.</summary>
/// <param name="Models">The versions of the model that are served now.</param>
/// <param name="Problems">Why other versions or aliases of the model are not served.</param>
public sealed record LoadResult(IReadOnlyList<ModelInfo> Models, IReadOnlyList<string> Problems)
{
    /// <inheritdoc/>
    public bool Equals(LoadResult? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "serves small@1, small@2; not served: small@3: its weights are missing".</returns>
    public override string ToString()
    {
        var served = string.Join(", ", Models.Select(model => FormattableString.Invariant($"{model.Name}@{model.Version}")));
        return $"serves {served}{(Problems.Count > 0 ? $"; not served: {string.Join("; ", Problems)}" : "")}";
    }

    private object?[] Parts() =>
    [
        ValueEquality.Of(Models),
        ValueEquality.Of(Problems),
    ];
}
