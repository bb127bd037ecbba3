namespace Quantra.Client;

/// <summary>What has to be sent beside the bars.</summary>
/// <param name="Name">Its name.</param>
/// <param name="Group">Where it goes in <see cref="Covariates"/>.</param>
/// <param name="Categories">Texts that the model knows, of a static covariate that is a text; empty = it is a number.</param>
public sealed record CovariateInfo(string Name, CovariateGroup Group, IReadOnlyList<string> Categories);
