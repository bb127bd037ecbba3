namespace Quantra.Client;

/// <summary>A covariate that a model needs with the bars.</summary>
/// <param name="Name">Its name.</param>
/// <param name="Group">Where it goes in <see cref="Covariates"/>.</param>
/// <param name="Categories">The texts that the model knows, for a static covariate that is a text; empty = it is a number.</param>
public sealed record CovariateInfo(string Name, CovariateGroup Group, IReadOnlyList<string> Categories);
