namespace Quantra.Client;

/// <summary>A covariate that a model needs with the bars.</summary>
/// <param name="Name">Its name.</param>
/// <param name="Group">Where it goes in <see cref="Covariates"/>.</param>
/// <param name="Categories">The texts that the model knows, for a static covariate that is a text; empty = it is a number.</param>
public sealed record CovariateInfo(string Name, CovariateGroup Group, IReadOnlyList<string> Categories)
{
    /// <inheritdoc/>
    public bool Equals(CovariateInfo? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "sector (Static): Hardware, Media".</returns>
    public override string ToString() => $"{Name} ({Group}){(Categories.Count > 0 ? ": " : "")}{Listed.First(Categories)}";

    private object?[] Parts() =>
    [
        Name,
        Group,
        ByValue.Of(Categories),
    ];
}
