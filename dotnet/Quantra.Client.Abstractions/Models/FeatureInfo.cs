namespace Quantra.Client;

/// <summary>One feature of a model.</summary>
/// <param name="Name">Name of the feature.</param>
/// <param name="Expression">How it is computed, in the feature language.</param>
/// <param name="Meaning">Description.</param>
/// <param name="Unit">The unit of its values.</param>
public sealed record FeatureInfo(string Name, string Expression, string Meaning, string Unit);
