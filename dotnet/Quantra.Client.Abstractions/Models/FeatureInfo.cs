namespace Quantra.Client;

/// <summary>One feature of a model.</summary>
/// <param name="Name">Its name.</param>
/// <param name="Expression">How it is computed, in the feature language.</param>
/// <param name="Meaning">What it means, in words.</param>
/// <param name="Unit">The unit of its values.</param>
public sealed record FeatureInfo(string Name, string Expression, string Meaning, string Unit);
