namespace Quantra.Client;

/// <summary>A covariate that a model needs with the bars.</summary>
/// <param name="Name">Name of the covariate.</param>
/// <param name="Group">Property of <see cref="Covariates"/> that holds it.</param>
/// <param name="Categories">Texts that the model knows, for a static text covariate; empty = it is a number.</param>
public sealed record CovariateInfo(string Name, CovariateGroup Group, IReadOnlyList<string> Categories)
{
    /// <inheritdoc/>
    public bool Equals(CovariateInfo? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "sector (Static): Hardware, Media".</returns>
    public override string ToString() => $"{Name} ({Group}){(Categories.Count > 0 ? ": " : "")}{MessageFormat.First(Categories)}";

    private object?[] Parts() =>
    [
        Name,
        Group,
        ValueEquality.Of(Categories),
    ];
}
